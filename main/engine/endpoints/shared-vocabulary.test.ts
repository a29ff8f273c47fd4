import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createScriptedVocabulary } from './scripted-vocabulary.ts';
import { SharedVocabulary } from './shared-vocabulary.ts';

let told: string[];
let shared: SharedVocabulary<string>;
beforeEach(() => {
  vi.useFakeTimers();
  told = [];
  shared = new SharedVocabulary<string>({
    keyOf: (target) => target,
    idleMs: 1000,
    open: async (target) => {
      told.push(`open ${target}`);
      return { ...createScriptedVocabulary(), dispose: async () => void told.push(`close ${target}`) };
    },
  });
});
afterEach(() => {
  vi.useRealTimers();
});
const use = (target: string) => shared.use(target, async (vocabulary) => vocabulary.status.size);

describe('a shared vocabulary', () => {
  it('is opened once for uses of the same, and closed when it was not used for a while', async () => {
    expect(await Promise.all([use('a'), use('a')])).toEqual([256, 256]);
    await vi.advanceTimersByTimeAsync(900);
    await use('a');
    await vi.advanceTimersByTimeAsync(900);
    expect(told).toEqual(['open a']);
    await vi.advanceTimersByTimeAsync(200);
    expect(told).toEqual(['open a', 'close a']);
    await use('a');
    expect(told).toEqual(['open a', 'close a', 'open a']);
  });

  it('gives way to another one', async () => {
    await Promise.all([use('a'), use('b')]);
    await shared.dispose();
    expect(told).toEqual(['open a', 'close a', 'open b', 'close b']);
  });

  it('is opened anew after a use that failed', async () => {
    await expect(shared.use('a', () => Promise.reject(new Error('it ended')))).rejects.toThrow('it ended');
    expect(await use('a')).toBe(256);
    expect(told).toEqual(['open a', 'close a', 'open a']);
  });

  it('says why it cannot be opened, and tries again', async () => {
    let tries = 0;
    const failing = new SharedVocabulary<string>({
      keyOf: (target) => target,
      open: async () => {
        if (++tries === 1) throw new Error('no such file');
        return createScriptedVocabulary();
      },
    });
    await expect(failing.use('a', async () => 1)).rejects.toThrow('no such file');
    expect(await failing.use('a', async () => 1)).toBe(1);
    await failing.dispose();
  });
});
