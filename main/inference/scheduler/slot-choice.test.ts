import { describe, expect, it } from 'vitest';
import { chooseSlot, commonPrefix, type SlotView } from './slot-choice.ts';

const slot = (view: Partial<SlotView>): SlotView => ({ affinity: null, held: 0, reusable: 0, age: 0, ...view });
const any = { affinity: undefined, sequences: 4 };

describe('chooseSlot', () => {
  it('takes the longest reusable prefix', () => {
    expect(chooseSlot([slot({ held: 900, reusable: 300 }), slot({ held: 900, reusable: 900 })], any)).toBe(1);
  });

  it('leaves a long live conversation alone when an empty sequence is free', () => {
    // 900 shared tokens saved against 19,100 lost, which a recent use makes likely to be wanted.
    expect(chooseSlot([slot({ held: 20_000, reusable: 900, age: 1 }), slot({ age: 9 })], any)).toBe(1);
  });

  it('reuses a conversation that has long been idle instead of an empty sequence', () => {
    // 2,100 tokens lost, eight assignments ago with four sequences: an eighth of them counts, 262 against 900 saved.
    expect(chooseSlot([slot({ age: 9 }), slot({ held: 3000, reusable: 900, age: 8 })], any)).toBe(1);
  });

  it('prefers the own conversation, then the least recently used', () => {
    const own = { affinity: 'a', sequences: 4 };
    expect(
      chooseSlot([slot({ affinity: 'b', held: 500, age: 9 }), slot({ affinity: 'a', held: 500, age: 1 })], own),
    ).toBe(1);
    expect(chooseSlot([slot({ age: 1 }), slot({ age: 5 }), slot({ age: 3 })], any)).toBe(1);
  });

  it('evicts an idle conversation before a live one of the same length', () => {
    expect(chooseSlot([slot({ held: 4000, age: 0 }), slot({ held: 4000, age: 6 })], any)).toBe(1);
  });

  it('finds nothing among none', () => {
    expect(chooseSlot([], any)).toBe(-1);
  });
});

describe('commonPrefix', () => {
  it.each([
    [[], [1], 0],
    [[1, 2, 3], [1, 2, 4], 2],
    [[1, 2], [1, 2, 3], 2],
  ])('of %j and %j is %i', (a, b, length) => expect(commonPrefix(a, b)).toBe(length));
});
