import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { quarantine, type RunStanding, standingOf } from './quarantine.ts';

const ranking = ['a', 'b', 'c', 'd', 'e'].map((id, i) => ({ id, rank: i + 1, score: 5 - i }));
const pool = (standings: Record<string, RunStanding>, needed = 3) =>
  quarantine({ ranking, needed, standing: (id) => standings[id] ?? 'free' });

describe('standingOf', () => {
  it('is the worst of the findings that are not cleared', () => {
    expect(standingOf([])).toBe('free');
    expect(standingOf(['cleared', 'cleared'])).toBe('free');
    expect(standingOf(['cleared', 'open'])).toBe('waiting');
    expect(standingOf(['open', 'upheld', 'cleared'])).toBe('upheld');
  });
});

describe('quarantine', () => {
  it('lets the next ranks move up and says who was left out, with the rank they had', () => {
    expect(pool({ b: 'waiting', d: 'upheld' })).toEqual({
      eligible: [ranking[0], ranking[2], ranking[4]],
      leftOut: [
        { id: 'b', rank: 2, standing: 'waiting' },
        { id: 'd', rank: 4, standing: 'upheld' },
      ],
      missing: 0,
      deciding: ['b'],
    });
  });
  it('does not ask about a run below the cut, unless upheld ones above bring it up', () => {
    expect(pool({ d: 'waiting' }).deciding).toEqual([]);
    expect(pool({ a: 'upheld', d: 'waiting' }).deciding).toEqual(['d']);
  });
  it('counts what is missing', () => {
    expect(pool({ a: 'waiting', b: 'waiting', c: 'upheld' })).toMatchObject({ missing: 1, deciding: ['a', 'b'] });
  });
  it('keeps everybody once, in order', () => {
    const standing = fc.constantFrom<RunStanding>('free', 'waiting', 'upheld');
    fc.assert(
      fc.property(fc.array(standing, { minLength: 5, maxLength: 5 }), fc.integer({ min: 1, max: 5 }), (all, needed) => {
        const { eligible, leftOut, missing } = quarantine({
          ranking,
          needed,
          standing: (id) => all[ranking.findIndex((run) => run.id === id)] ?? 'free',
        });
        expect([...eligible, ...leftOut].map(({ rank }) => rank).sort()).toEqual([1, 2, 3, 4, 5]);
        expect(missing).toBe(Math.max(0, needed - eligible.length));
      }),
    );
  });
});
