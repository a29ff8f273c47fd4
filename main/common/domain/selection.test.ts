import { describe, expect, it } from 'vitest';
import type { MassError } from '../base/errors.ts';
import { rankByScore } from './bradley-terry.ts';
import { compareSelections, cutMargin, selectRuns } from './selection.ts';

const names = (n: number): string[] => Array.from({ length: n }, (_, i) => `run-${String(i).padStart(2, '0')}`);
const ranked = (n: number) =>
  rankByScore(
    names(n),
    names(n).map((_, i) => -i),
  );

describe('selection', () => {
  it('trains on ranks 1-15, validates on 16 and drops 17-18', () => {
    const entries = selectRuns({ ranking: ranked(18), train: 15, validate: 1 });
    expect(entries.map((e) => e.decision)).toEqual([...Array(15).fill('train'), 'validate', 'drop', 'drop']);
    expect(entries.map((e) => e.rank)).toEqual(Array.from({ length: 18 }, (_, i) => i + 1));
    expect(entries[15]?.id).toBe('run-15');
  });

  it('uses every run when there are exactly enough', () => {
    const entries = selectRuns({ ranking: ranked(3), train: 2, validate: 1 });
    expect(entries.map((e) => e.decision)).toEqual(['train', 'train', 'validate']);
  });

  it('says how many runs are missing', () => {
    const select = () => selectRuns({ ranking: ranked(13), train: 15, validate: 1 });
    expect(select).toThrow(
      'The selection needs 16 successful runs (15 to train, 1 to validate) and has 13: 3 are missing; collect again, or lower select.train or select.validate.',
    );
    try {
      select();
    } catch (error) {
      expect((error as MassError).code).toBe('prerequisite');
      expect((error as MassError).details).toMatchObject({ missing: 3, available: 13 });
    }
    expect(() => selectRuns({ ranking: ranked(15), train: 15, validate: 1 })).toThrow(/1 is missing/);
  });

  it('lists the runs that the two fits would use differently', () => {
    const ids = ['a', 'b', 'c', 'd'];
    const pick = (scores: number[]) => selectRuns({ ranking: rankByScore(ids, scores), train: 2, validate: 1 });
    expect(compareSelections(pick([4, 3, 2, 1]), pick([4, 3, 2, 1]))).toEqual([]);
    expect(compareSelections(pick([4, 3, 2, 1]), pick([3, 4, 2, 1]))).toEqual([]); // both train either way
    expect(compareSelections(pick([4, 3, 2, 1]), pick([4, 2, 3, 1]))).toEqual([
      { id: 'b', mm: 'train', newton: 'validate' },
      { id: 'c', mm: 'validate', newton: 'train' },
    ]);
  });

  it('measures the gap at the cut with the standard error of a difference', () => {
    const ids = ['x', 'y', 'z'];
    const scores = [0.5, 2, -1];
    const covariance = [
      [0.5, 0.1, 0.2],
      [0.1, 0.4, 0],
      [0.2, 0, 0.7],
    ];
    const common = { ids, scores, ranking: rankByScore(ids, scores) };
    const margin = cutMargin({ ...common, cut: 2, covariance });
    expect(margin).toMatchObject({ above: 'x', below: 'z', gap: 1.5 });
    expect(margin?.standardError).toBeCloseTo(Math.sqrt(0.5 + 0.7 - 0.4), 15);
    expect(cutMargin({ ...common, cut: 1 })).toEqual({ above: 'y', below: 'x', gap: 1.5, standardError: null });
    expect(cutMargin({ ...common, cut: 3 })).toBeNull();
    expect(cutMargin({ ...common, cut: 0 })).toBeNull();
  });
});
