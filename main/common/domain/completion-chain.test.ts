import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CompletionChain, commonPrefix, promptOf } from './completion-chain.ts';

describe('completion chain', () => {
  it('keeps a growing conversation as prefix of the parent plus a tail', () => {
    const chain = new CompletionChain();
    expect(chain.link('t', [1, 2, 3])).toEqual({ parentCompletionId: null, parentPrefix: 0, promptTail: [1, 2, 3] });
    chain.add('t', 'a', [1, 2, 3], [7, 9]);
    expect(chain.link('t', [1, 2, 3, 7, 9, 4])).toEqual({
      parentCompletionId: 'a',
      parentPrefix: 5,
      promptTail: [4],
    });
    expect(chain.link('other', [1, 2, 3])).toMatchObject({ parentCompletionId: null, parentPrefix: 0 });
  });

  it('picks the earlier completion with the longest common prefix', () => {
    const chain = new CompletionChain();
    chain.add('t', 'long', [1, 2, 3, 4], [5]);
    chain.add('t', 'short', [1, 2, 8], [9]);
    expect(chain.link('t', [1, 2, 3, 4, 6])).toEqual({ parentCompletionId: 'long', parentPrefix: 4, promptTail: [6] });
  });

  it('forgets the oldest beyond its limits and stays correct', () => {
    const chain = new CompletionChain({ perThread: 2, idsPerOwner: 7 });
    chain.add('t', 'a', [1], [2]);
    chain.add('t', 'b', [1, 2], [3]);
    chain.add('t', 'c', [5], [6]);
    expect(chain.link('t', [1, 2]).parentCompletionId).toBe('b');
    chain.add('u', 'd', [1, 2, 3], [4]);
    expect(chain.link('t', [1, 2]).parentCompletionId).toBeNull();
    expect(chain.link('t', [5]).parentCompletionId).toBe('c');
  });

  it('loses no token, whatever the conversations are (property)', () => {
    const ids = fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 12 });
    const step = fc.record({ thread: fc.constantFrom('a', 'b'), prompt: ids, sampled: ids });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
        const chain = new CompletionChain({ perThread: 3, idsPerOwner: 60 });
        const whole = new Map<string, number[]>();
        steps.forEach(({ thread, prompt, sampled }, i) => {
          const link = chain.link(thread, prompt);
          const parent = link.parentCompletionId === null ? null : (whole.get(link.parentCompletionId) ?? null);
          expect(promptOf(link, parent)).toEqual(prompt);
          whole.set(String(i), [...prompt, ...sampled]);
          chain.add(thread, String(i), prompt, sampled);
        });
      }),
    );
  });

  it('refuses a link its parent cannot satisfy', () => {
    const link = { parentCompletionId: 'p', parentPrefix: 3, promptTail: [1] };
    expect(() => promptOf(link, [1, 2])).toThrow(/holds 2 tokens, but 3/);
    expect(commonPrefix([1, 2, 3], [1, 2])).toBe(2);
  });
});
