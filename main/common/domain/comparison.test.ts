import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ComparedPair, ComparisonResult, compareRollouts, reversed } from './comparison.ts';

const run = { completed: true, delegations: 0, outputTokens: 100, conditions: '' };
const pair = (given: Partial<ComparedPair> = {}): ComparedPair => ({
  taskId: 'one',
  split: 'train',
  replicate: 0,
  first: run,
  second: run,
  result: 'first',
  flipped: false,
  invalidPresentations: 0,
  decidedPresentations: 2,
  firstSlotWins: 1,
  ...given,
});
const results = (...all: ComparedPair['result'][]): ComparedPair[] => all.map((result) => pair({ result }));

describe('compareRollouts', () => {
  it('gives W / (W + L) with a Wilson interval, ties left out', () => {
    const { all } = compareRollouts([...results(...Array<'first'>(8).fill('first'), 'second', 'second', 'tie', 'tie')]);
    expect([all.pairs, all.wins, all.losses, all.ties, all.winRate.rate]).toEqual([12, 8, 2, 2, 0.8]);
    // Wilson, 8 of 10, z = 1.959964
    expect(all.winRate.low).toBeCloseTo(0.4902, 4);
    expect(all.winRate.high).toBeCloseTo(0.9433, 4);
  });

  it('knows nothing without a pair, and nothing from ties alone', () => {
    const unknown = { rate: null, low: 0, high: 1 };
    const empty = compareRollouts([]);
    expect([empty.tasks, empty.splits, empty.all.pairs, empty.all.winRate]).toEqual([[], [], 0, unknown]);
    expect(empty.all.first).toEqual({
      runs: 0,
      completed: 0,
      completionRate: unknown,
      delegated: 0,
      delegationRate: unknown,
      delegations: 0,
      outputTokens: 0,
      meanOutputTokens: null,
    });
    const { all } = compareRollouts(results('tie', 'tie', 'tie'));
    expect([all.pairs, all.ties, all.winRate]).toEqual([3, 3, unknown]);
  });

  it('keeps tasks and splits apart', () => {
    const { tasks, splits, all } = compareRollouts([
      pair({ taskId: 'b', result: 'first' }),
      pair({ taskId: 'a', result: 'second' }),
      pair({ taskId: 'b', result: 'tie', replicate: 1 }),
      pair({ taskId: 'c', split: 'test', result: 'first' }),
    ]);
    const told = tasks.map(({ taskId, split, wins, losses, ties }) => [taskId, split, wins, losses, ties]);
    expect(told).toEqual([
      ['b', 'train', 1, 0, 1],
      ['a', 'train', 0, 1, 0],
      ['c', 'test', 1, 0, 0],
    ]);
    expect(splits.map(({ split, pairs, winRate }) => [split, pairs, winRate.rate])).toEqual([
      ['train', 3, 0.5],
      ['test', 1, 1],
    ]);
    expect(all.winRate.rate).toBeCloseTo(2 / 3, 12);
    expect(compareRollouts([pair({ split: 'test' })]).splits.map(({ split }) => split)).toEqual(['test']);
  });

  it('counts completion, delegation and tokens of each side', () => {
    const { all, judging } = compareRollouts([
      pair({
        first: { completed: true, delegations: 3, outputTokens: 1000, conditions: 'v1' },
        second: { completed: false, delegations: 0, outputTokens: 50, conditions: 'v2' },
      }),
      pair({
        first: { completed: true, delegations: 1, outputTokens: 500, conditions: 'v1' },
        second: { completed: true, delegations: 2, outputTokens: 100, conditions: 'v1' },
        flipped: true,
        invalidPresentations: 1,
        decidedPresentations: 1,
        firstSlotWins: 1,
      }),
    ]);
    expect(all.first).toMatchObject({ runs: 2, completed: 2, delegated: 2, delegations: 4, meanOutputTokens: 750 });
    expect(all.second).toMatchObject({ runs: 2, completed: 1, delegated: 1, delegations: 2, meanOutputTokens: 75 });
    expect([all.second.completionRate.rate, all.first.delegationRate.rate]).toEqual([0.5, 1]);
    expect(judging).toMatchObject({
      flipped: 1,
      invalidPresentations: 1,
      decidedPresentations: 3,
      firstSlotWins: 2,
      haltedPairs: 1,
      unlikePairs: 1,
    });
    expect(judging.firstSlotRate.rate).toBeCloseTo(2 / 3, 12);
  });

  it('adds up, is a valid result, and reversed it is the comparison with the sides exchanged', () => {
    const aRun = fc.record({
      completed: fc.boolean(),
      delegations: fc.nat(5),
      outputTokens: fc.nat(10_000),
      conditions: fc.constantFrom('v1', 'v2'),
    });
    const aPair = fc.record({
      taskId: fc.constantFrom('a', 'b', 'c'),
      replicate: fc.nat(3),
      first: aRun,
      second: aRun,
      result: fc.constantFrom('first' as const, 'second' as const, 'tie' as const),
      flipped: fc.boolean(),
      invalidPresentations: fc.nat(2),
      decidedPresentations: fc.constant(2),
      firstSlotWins: fc.nat(2),
    });
    fc.assert(
      fc.property(fc.array(aPair), (raw) => {
        const pairs = raw.map((one) => ({
          ...one,
          split: one.taskId === 'c' ? ('test' as const) : ('train' as const),
        }));
        const result = compareRollouts(pairs);
        expect(ComparisonResult.parse(result)).toEqual(result);
        for (const rows of [result.tasks, result.splits])
          for (const key of ['pairs', 'wins', 'losses', 'ties'] as const)
            expect(rows.reduce((total, row) => total + row[key], 0)).toBe(result.all[key]);
        const exchanged = pairs.map((one) => ({
          ...one,
          first: one.second,
          second: one.first,
          result: one.result === 'tie' ? one.result : one.result === 'first' ? ('second' as const) : ('first' as const),
        }));
        expect(reversed(result)).toEqual(compareRollouts(exchanged));
      }),
    );
  });
});
