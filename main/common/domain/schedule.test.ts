import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { opponentsPossible, type ScheduledMatch, scheduleMatches } from './schedule.ts';

const names = (n: number): string[] => Array.from({ length: n }, (_, i) => `run-${String(i).padStart(2, '0')}`);
const schedule = (n: number, opponents = 6, taskNumber = 51): ScheduledMatch[] =>
  scheduleMatches({ ids: names(n), opponents, seed: 1234, taskNumber });
const pairOf = (m: ScheduledMatch): string => [m.first, m.second].sort().join(' ');

function degrees(n: number, matches: readonly ScheduledMatch[]): Map<string, number> {
  const degree = new Map(names(n).map((id) => [id, 0]));
  for (const m of matches) for (const id of [m.first, m.second]) degree.set(id, (degree.get(id) ?? 0) + 1);
  return degree;
}

/** Number of components, by repeated merging of labels. */
function components(n: number, matches: readonly ScheduledMatch[]): number {
  const label = new Map(names(n).map((id) => [id, id]));
  for (const m of matches) {
    const [keep, drop] = [label.get(m.first)!, label.get(m.second)!];
    for (const [id, l] of label) if (l === drop) label.set(id, keep);
  }
  return new Set(label.values()).size;
}

describe('schedule', () => {
  it('gives 18 runs 6 opponents each in 54 unique matches', () => {
    const matches = schedule(18);
    expect(matches).toHaveLength(54);
    expect([...degrees(18, matches).values()]).toEqual(Array(18).fill(6));
    expect(matches.map((m) => m.seed)).toEqual(Array.from({ length: 54 }, (_, i) => 1234 + 51_000 + i));
  });

  it('is connected, balanced and without repeats for 2 to 64 candidates and any number of opponents', () => {
    for (let n = 2; n <= 64; n++) {
      for (const opponents of [1, 2, 3, 5, 6, 7, n - 2, n - 1, n + 5]) {
        const matches = schedule(n, opponents);
        const d = opponentsPossible(n, opponents);
        const degree = [...degrees(n, matches).values()].sort((a, b) => a - b);
        const expected = Array(n).fill(d);
        if ((n * d) % 2 === 1) expected[0] = d - 1;
        expect(degree, `n=${n} opponents=${opponents}`).toEqual(expected);
        expect(matches).toHaveLength(Math.floor((n * d) / 2));
        expect(new Set(matches.map(pairOf)).size).toBe(matches.length);
        expect(matches.every((m) => m.first !== m.second)).toBe(true);
        expect(components(n, matches)).toBe(1);
      }
    }
  });

  it('clips the opponents to n - 1 and keeps at least two where one would disconnect', () => {
    expect(opponentsPossible(4, 6)).toBe(3);
    expect(opponentsPossible(2, 6)).toBe(1);
    expect(opponentsPossible(10, 1)).toBe(2);
    expect(schedule(4)).toHaveLength(6); // every pair of four
    expect(schedule(1)).toEqual([]);
    expect(schedule(0)).toEqual([]);
  });

  it('does not depend on the order in which the candidates are listed', () => {
    fc.assert(
      fc.property(fc.shuffledSubarray(names(18), { minLength: 18 }), (ids) => {
        expect(scheduleMatches({ ids, opponents: 6, seed: 1234, taskNumber: 51 })).toEqual(schedule(18));
      }),
      { numRuns: 20 },
    );
  });

  it('changes with the seed and the task', () => {
    const pairs = (taskNumber: number, seed = 1234): string =>
      scheduleMatches({ ids: names(18), opponents: 6, seed, taskNumber })
        .map(pairOf)
        .sort()
        .join('\n');
    expect(pairs(51)).toBe(pairs(51));
    expect(new Set([pairs(51), pairs(52), pairs(53), pairs(51, 99)]).size).toBe(4);
  });

  it('shows each side first about half the time, and mixes all pairs over tasks', () => {
    const met = new Map<string, number>();
    let lowFirst = 0;
    let total = 0;
    for (let task = 0; task < 400; task++)
      for (const m of schedule(10, 4, task * 2)) {
        met.set(pairOf(m), (met.get(pairOf(m)) ?? 0) + 1);
        lowFirst += m.first < m.second ? 1 : 0;
        total++;
      }
    expect(total).toBe(400 * 20);
    // binomial, 8000 trials: 5 standard deviations are 224
    expect(Math.abs(lowFirst - total / 2)).toBeLessThan(224);
    // each of 45 pairs is expected 400 * 4/9 = 178 times, standard deviation about 10
    expect(met.size).toBe(45);
    expect(Math.min(...met.values())).toBeGreaterThan(128);
    expect(Math.max(...met.values())).toBeLessThan(228);
  });

  it('refuses a candidate named twice', () => {
    expect(() => scheduleMatches({ ids: ['a', 'a'], opponents: 6, seed: 1, taskNumber: 1 })).toThrow(/distinct/);
  });
});
