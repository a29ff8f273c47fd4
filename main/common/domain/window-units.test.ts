import { describe, expect, it } from 'vitest';
import { type CutInput, cutUnits } from './window-units.ts';

const ids = Uint32Array.from({ length: 12 }, (_, i) => i);
const cut = (change: Partial<CutInput>) =>
  cutUnits({ ids, headerEnd: 2, starts: [2, 5, 9], sampled: [], ...change }).map(({ start, end, parts }) => [
    start,
    end,
    parts.map((part) => [[...part.ids], part.completionId]),
  ]);

describe('turns of a conversation', () => {
  it('are cut where they begin, and each into what was sampled and what was not', () => {
    expect(cut({ sampled: [{ completionId: 'c1', start: 6, end: 8 }] })).toEqual([
      [2, 5, [[[2, 3, 4], null]]],
      [
        5,
        9,
        [
          [[5], null],
          [[6, 7], 'c1'],
          [[8], null],
        ],
      ],
      [9, 12, [[[9, 10, 11], null]]],
    ]);
  });

  it('are not cut inside sampled ids, where the model wrote the marker of a turn itself', () => {
    expect(cut({ sampled: [{ completionId: 'c1', start: 3, end: 7 }] })).toEqual([
      [
        2,
        9,
        [
          [[2], null],
          [[3, 4, 5, 6], 'c1'],
          [[7, 8], null],
        ],
      ],
      [9, 12, [[[9, 10, 11], null]]],
    ]);
  });

  it('are cut at the edges of sampled ids', () => {
    const ends = cut({ sampled: [{ completionId: 'c1', start: 5, end: 9 }] });
    expect(ends.map(([start, end]) => [start, end])).toEqual([
      [2, 5],
      [5, 9],
      [9, 12],
    ]);
  });

  it('hold what follows the header also where nothing says that a turn begins', () => {
    expect(cut({ starts: [] })).toEqual([[2, 12, [[[2, 3, 4, 5, 6, 7, 8, 9, 10, 11], null]]]]);
    expect(cut({ starts: [], headerEnd: 12 })).toEqual([]);
  });
});
