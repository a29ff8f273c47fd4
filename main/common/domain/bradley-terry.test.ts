import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fitMM, fitNewton, type PairOutcome, rankByScore, Z95 } from './bradley-terry.ts';
import { scheduleMatches } from './schedule.ts';

const win = (first: number, second: number): PairOutcome => ({ first, second, result: 'first' });
const tie = (first: number, second: number): PairOutcome => ({ first, second, result: 'tie' });

/** Root of an increasing or decreasing function between two points of opposite sign. */
function root(f: (x: number) => number, low: number, high: number): number {
  let [a, b] = [low, high];
  for (let i = 0; i < 200; i++) {
    const middle = (a + b) / 2;
    if (f(middle) > 0 === f(a) > 0) a = middle;
    else b = middle;
  }
  return (a + b) / 2;
}

const results = ['first', 'second', 'tie'] as const;
/** A tournament of n candidates along a real schedule, with arbitrary results. */
const tournament = fc
  .record({
    n: fc.integer({ min: 2, max: 18 }),
    task: fc.nat(99),
    letters: fc.array(fc.constantFrom(...results), { minLength: 54, maxLength: 54 }),
  })
  .map(({ n, task, letters }) => {
    const ids = Array.from({ length: n }, (_, i) => String(i));
    const matches = scheduleMatches({ ids, opponents: 6, seed: 1234, taskNumber: task });
    const outcomes = matches.map((m, i): PairOutcome => {
      return { first: Number(m.first), second: Number(m.second), result: letters[i]! };
    });
    return { n, outcomes };
  });

describe('MM fit', () => {
  it('makes exactly the stated step', () => {
    // one win of 0 over 1, from p = 1: 1.5/(0.25+0.5) = 2 and 0.5/(0.25+0.5) = 2/3; rescaled by 4/3: 3/2 and 1/2
    const { strengths, scores } = fitMM({ n: 2, outcomes: [win(0, 1)], iterations: 1 });
    expect(strengths[0]).toBeCloseTo(1.5, 15);
    expect(strengths[1]).toBeCloseTo(0.5, 15);
    expect(scores[0]).toBeCloseTo(Math.log(1.5), 15);
  });

  it('updates all candidates from the same previous strengths', () => {
    // 0 beats 1, 1 beats 2. Step 1: p = (2, 1.5/1.25, 2/3) = (2, 6/5, 2/3), mean 58/45 -> (45, 27, 15)/29
    const [a, b, c] = fitMM({ n: 3, outcomes: [win(0, 1), win(1, 2)], iterations: 1 }).strengths as [
      number,
      number,
      number,
    ];
    expect(a).toBeCloseTo(45 / 29, 14);
    expect(b).toBeCloseTo(27 / 29, 14);
    expect(c).toBeCloseTo(15 / 29, 14);
    // step 2 of candidate 1, before rescaling: (1 + 0.5) / (0.5/(b+1) + 1/(a+b) + 1/(b+c)), and so on
    const raised = [
      1.5 / (0.5 / (a + 1) + 1 / (a + b)),
      1.5 / (0.5 / (b + 1) + 1 / (a + b) + 1 / (b + c)),
      0.5 / (0.5 / (c + 1) + 1 / (b + c)),
    ];
    const mean = (raised[0]! + raised[1]! + raised[2]!) / 3;
    const two = fitMM({ n: 3, outcomes: [win(0, 1), win(1, 2)], iterations: 2 }).strengths;
    two.forEach((p, i) => {
      expect(p).toBeCloseTo(raised[i]! / mean, 14);
    });
  });

  it('reaches the fixed point two candidates have in closed form', () => {
    // p = 1 +- x: the ratio of the raised strengths equals (1+x)/(1-x) where x^3 - x^2 - 5x + 3 = 0
    const x = root((t) => t ** 3 - t ** 2 - 5 * t + 3, 0, 1);
    expect(x).toBeCloseTo(0.572, 3);
    const { strengths } = fitMM({ n: 2, outcomes: [win(0, 1)] });
    expect(strengths[0]).toBeCloseTo(1 + x, 12);
    expect(strengths[1]).toBeCloseTo(1 - x, 12);
  });

  it('counts a tie as half a win each', () => {
    expect(fitMM({ n: 2, outcomes: [tie(0, 1)] }).scores).toEqual([0, 0]);
    const twoTies = fitMM({ n: 3, outcomes: [tie(0, 1), tie(1, 0), win(0, 2), win(1, 2)] });
    const oneEach = fitMM({ n: 3, outcomes: [win(0, 1), win(1, 0), win(0, 2), win(1, 2)] });
    expect(twoTies).toEqual(oneEach);
  });

  it('gives candidates with mirrored records the very same score', () => {
    const cycle = fitMM({ n: 3, outcomes: [win(0, 1), win(1, 2), win(2, 0)] });
    expect(new Set(cycle.scores).size).toBe(1);
    const { scores } = fitMM({ n: 7, outcomes: [0, 1, 2, 3, 4, 5].map((i) => win(6, i)) });
    expect(new Set(scores.slice(0, 6)).size).toBe(1);
    expect(scores[6]).toBeGreaterThan(scores[0]!);
  });

  it('does not depend on how candidates are numbered, to the last bit', () => {
    fc.assert(
      fc.property(tournament, fc.nat(), ({ n, outcomes }, turn) => {
        const moved = (i: number): number => (n - 1 - i + turn) % n;
        const renamed = outcomes.map((o) => ({ ...o, first: moved(o.first), second: moved(o.second) })).reverse();
        const plain = fitMM({ n, outcomes }).scores;
        const other = fitMM({ n, outcomes: renamed }).scores;
        plain.forEach((score, i) => {
          expect(other[moved(i)]).toBe(score);
        });
      }),
      { numRuns: 30 },
    );
  });

  it('has converged after 500 iterations, with mean strength 1', () => {
    fc.assert(
      fc.property(tournament, ({ n, outcomes }) => {
        const { strengths, scores } = fitMM({ n, outcomes });
        expect(strengths.reduce((s, p) => s + p, 0) / n).toBeCloseTo(1, 12);
        fitMM({ n, outcomes, iterations: 501 }).scores.forEach((score, i) => {
          expect(Number.isFinite(score)).toBe(true);
          expect(Math.abs(score - scores[i]!)).toBeLessThan(1e-4);
        });
      }),
      { numRuns: 60 },
    );
  });

  it('stays finite when one candidate wins or loses everything', () => {
    const sweep = Array.from({ length: 17 }, (_, i) => win(0, i + 1));
    const { scores } = fitMM({ n: 18, outcomes: [...sweep, ...sweep, ...sweep] });
    expect(scores.every(Number.isFinite)).toBe(true);
    expect(rankByScore(scores.map(String), scores)[0]?.score).toBe(scores[0]);
  });

  it('knows nothing about candidates without a match', () => {
    expect(fitMM({ n: 0, outcomes: [] }).scores).toEqual([]);
    expect(fitMM({ n: 2, outcomes: [] }).scores).toEqual([0, 0]);
  });
});

describe('penalised Newton fit', () => {
  it('solves two candidates as by hand', () => {
    // +-t with 1 - logistic(2t) = t / v, v = 1; hessian diagonal w + 1, off-diagonal -w with w = s(1-s)
    const s = (x: number): number => 1 / (1 + Math.exp(-x));
    const t = root((x) => 1 - s(2 * x) - x, 0, 1);
    const w = s(2 * t) * (1 - s(2 * t));
    const fit = fitNewton({ n: 2, outcomes: [win(0, 1)], priorVariance: 1 });
    expect(fit.scores[0]).toBeCloseTo(t, 12);
    expect(fit.scores[1]).toBeCloseTo(-t, 12);
    expect(fit.standardErrors[0]).toBeCloseTo(Math.sqrt((w + 1) / (2 * w + 1)), 12);
    expect(fit.intervals[0]?.high).toBeCloseTo(t + Z95 * Math.sqrt((w + 1) / (2 * w + 1)), 12);
    // a tie: w = 1/4, variance (5/4)/(3/2) = 5/6, covariance (1/4)/(3/2) = 1/6
    const even = fitNewton({ n: 2, outcomes: [tie(0, 1)], priorVariance: 1 });
    expect(even.scores).toEqual([0, 0]);
    expect(even.covariance[0]?.[0]).toBeCloseTo(5 / 6, 14);
    expect(even.covariance[0]?.[1]).toBeCloseTo(1 / 6, 14);
  });

  it('shrinks less under a wider prior, and returns the prior where nothing was played', () => {
    const narrow = fitNewton({ n: 2, outcomes: [win(0, 1)], priorVariance: 0.1 }).scores[0]!;
    const wide = fitNewton({ n: 2, outcomes: [win(0, 1)], priorVariance: 10 }).scores[0]!;
    expect(narrow).toBeLessThan(wide);
    expect(fitNewton({ n: 1, outcomes: [], priorVariance: 4 })).toEqual({
      scores: [0],
      standardErrors: [2],
      intervals: [{ low: -2 * Z95, high: 2 * Z95 }],
      covariance: [[4]],
    });
  });

  it('is at the optimum, centred and finite for any tournament', () => {
    fc.assert(
      fc.property(tournament, fc.constantFrom(0.1, 1, 10, 1000), ({ n, outcomes }, priorVariance) => {
        const { scores, standardErrors } = fitNewton({ n, outcomes, priorVariance });
        const gradient = scores.map((t) => -t / priorVariance);
        for (const { first, second, result } of outcomes) {
          const expected = 1 / (1 + Math.exp(scores[second]! - scores[first]!));
          const won = result === 'tie' ? 0.5 : result === 'first' ? 1 : 0;
          gradient[first] = gradient[first]! + won - expected;
          gradient[second] = gradient[second]! - won + expected;
        }
        for (const g of gradient) expect(Math.abs(g)).toBeLessThan(1e-6);
        expect(Math.abs(scores.reduce((sum, t) => sum + t, 0))).toBeLessThan(1e-6 * priorVariance * n);
        for (const se of standardErrors) {
          expect(se).toBeGreaterThan(0);
          expect(se).toBeLessThanOrEqual(Math.sqrt(priorVariance) * (1 + 1e-9));
        }
      }),
    );
  });

  it('stays finite under complete separation', () => {
    const sweep = Array.from({ length: 17 }, (_, i) => win(0, i + 1));
    const fit = fitNewton({ n: 18, outcomes: Array(20).fill(sweep).flat(), priorVariance: 100 });
    expect([...fit.scores, ...fit.standardErrors].every(Number.isFinite)).toBe(true);
    expect(Math.max(...fit.scores)).toBe(fit.scores[0]);
  });

  it('covers the true skill about 95 times in 100 when the prior is right', () => {
    let state = 7;
    const random = (): number => {
      state = (state * 48271) % 2147483647; // MINSTD: independent of the generator the schedule uses
      return state / 2147483647;
    };
    const normal = (): number => Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
    let covered = 0;
    const rounds = 200;
    const n = 10;
    const ids = Array.from({ length: n }, (_, i) => String(i));
    for (let round = 0; round < rounds; round++) {
      const skill = ids.map(normal);
      const outcomes = scheduleMatches({ ids, opponents: 6, seed: round, taskNumber: 0 }).map((m): PairOutcome => {
        const [first, second] = [Number(m.first), Number(m.second)];
        const p = 1 / (1 + Math.exp(skill[second]! - skill[first]!));
        return { first, second, result: random() < p ? 'first' : 'second' };
      });
      const { intervals } = fitNewton({ n, outcomes, priorVariance: 1 });
      covered += intervals.filter(({ low, high }, i) => low <= skill[i]! && skill[i]! <= high).length;
    }
    expect(covered / (rounds * n)).toBeGreaterThan(0.92);
    expect(covered / (rounds * n)).toBeLessThan(0.98);
  });
});

describe('ranking', () => {
  it('orders by score, and equal scores by name', () => {
    expect(rankByScore(['c', 'B', 'a', 'b'], [1, 0, 2, 0])).toEqual([
      { id: 'a', rank: 1, score: 2 },
      { id: 'c', rank: 2, score: 1 },
      { id: 'B', rank: 3, score: 0 },
      { id: 'b', rank: 4, score: 0 },
    ]);
  });
});
