import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sha256 } from './hashing.ts';
import { loadPrompt, loadPromptSet } from './prompts.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-prompts-'));
  writeFileSync(join(folder, 'greeter.v2.md'), 'Hello {{name}}, you have {{count}} turns, {{name}}.\n');
  writeFileSync(join(folder, 'notes.v1.json'), '{"cut": "{{bytes}} bytes left out", "plain": "nothing"}');
  writeFileSync(join(folder, 'broken.v1.json'), '{"cut": 3}');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('loadPrompt', () => {
  it('fills every slot once and gives the hash of the file', () => {
    const prompt = loadPrompt('greeter', 2, folder);
    expect(prompt.id).toBe('greeter.v2');
    expect(prompt.slots).toEqual(['name', 'count']);
    expect(prompt.hash).toBe(sha256('Hello {{name}}, you have {{count}} turns, {{name}}.\n'));
    expect(prompt.fill({ name: 'Ada', count: 3 })).toBe('Hello Ada, you have 3 turns, Ada.');
  });

  it('keeps slot-like and pattern-like text of a value as text', () => {
    const prompt = loadPrompt('greeter', 2, folder);
    expect(prompt.fill({ name: '{{count}} $& $1', count: 1 })).toBe(
      'Hello {{count}} $& $1, you have 1 turns, {{count}} $& $1.',
    );
  });

  it('refuses missing, unknown and inherited slots', () => {
    const prompt = loadPrompt('greeter', 2, folder);
    expect(() => prompt.fill({ name: 'Ada' })).toThrow(/greeter\.v2/);
    expect(() => prompt.fill({ name: 'Ada', count: 1, extra: 1 })).toThrow(/greeter\.v2/);
  });

  it('refuses an absent file and a name that is a path', () => {
    expect(() => loadPrompt('greeter', 3, folder)).toThrow(/greeter\.v3\.md/);
    expect(() => loadPrompt('../greeter', 2, folder)).toThrow(/not a prompt name/);
  });
});

describe('loadPromptSet', () => {
  it('fills a named text and refuses an unknown name', () => {
    const set = loadPromptSet('notes', 1, folder);
    expect(set.names).toEqual(['cut', 'plain']);
    expect(set.fill('cut', { bytes: 12 })).toBe('12 bytes left out');
    expect(() => set.fill('toString')).toThrow(/no text named/);
  });

  it('refuses a damaged file', () => {
    expect(() => loadPromptSet('broken', 1, folder)).toThrow(/damaged/);
  });
});
