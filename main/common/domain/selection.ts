import { MassError } from '../base/errors.ts';
import type { Ranked } from './bradley-terry.ts';
import type { Matrix } from './cholesky.ts';

export type Decision = 'train' | 'validate' | 'drop';

export interface SelectionEntry extends Ranked {
  readonly decision: Decision;
}

export interface SelectRunsInput {
  /** successful runs of one task, best first (`rankByScore`) */
  readonly ranking: readonly Ranked[];
  /** ranks 1..train become training data (15 in the paper) */
  readonly train: number;
  /** the ranks after them validate (1 in the paper); the rest is dropped */
  readonly validate: number;
}

/** The cut by rank, in rank order. Errors: `prerequisite` when there are fewer runs than train + validate. */
export function selectRuns({ ranking, train, validate }: SelectRunsInput): SelectionEntry[] {
  const needed = train + validate;
  const missing = needed - ranking.length;
  if (missing > 0) {
    throw new MassError(
      'prerequisite',
      `The selection needs ${needed} successful runs (${train} to train, ${validate} to validate) and has ` +
        `${ranking.length}: ${missing} ${missing === 1 ? 'is' : 'are'} missing; collect again, or lower select.train or select.validate.`,
      { details: { needed, available: ranking.length, missing, train, validate } },
    );
  }
  return ranking.map((entry, i) => ({
    ...entry,
    rank: i + 1,
    decision: i < train ? 'train' : i < needed ? 'validate' : 'drop',
  }));
}

export interface SelectionDifference {
  readonly id: string;
  readonly mm: Decision;
  readonly newton: Decision;
}

/** Runs that the two fits would use differently, in the order of the MM selection; empty when they agree. */
export function compareSelections(
  mm: readonly SelectionEntry[],
  newton: readonly SelectionEntry[],
): SelectionDifference[] {
  const other = new Map(newton.map((entry) => [entry.id, entry.decision]));
  return mm.flatMap(({ id, decision }) => {
    const newtonDecision = other.get(id) ?? 'drop';
    return newtonDecision === decision ? [] : [{ id, mm: decision, newton: newtonDecision }];
  });
}

export interface CutMargin {
  /** last rank kept and first rank not kept */
  readonly above: string;
  readonly below: string;
  /** score of `above` minus score of `below`, in log strength */
  readonly gap: number;
  /** of the gap; null when no covariance is known */
  readonly standardError: number | null;
}

export interface CutMarginInput {
  /** candidates and their scores, in the order of `covariance` */
  readonly ids: readonly string[];
  readonly scores: readonly number[];
  readonly ranking: readonly Ranked[];
  /** ranks 1..cut lie above */
  readonly cut: number;
  readonly covariance?: Matrix;
}

/**
 * How far apart the two runs at a cut are: a gap below about two standard errors means that another tournament could
 * have cut elsewhere. Var(a - b) = C_aa + C_bb - 2 C_ab. Null when nothing lies on one side of the cut.
 */
export function cutMargin({ ids, scores, ranking, cut, covariance }: CutMarginInput): CutMargin | null {
  const above = ranking[cut - 1]?.id;
  const below = ranking[cut]?.id;
  if (above === undefined || below === undefined) return null;
  const a = ids.indexOf(above);
  const b = ids.indexOf(below);
  const gap = (scores[a] ?? Number.NaN) - (scores[b] ?? Number.NaN);
  if (!covariance) return { above, below, gap, standardError: null };
  const entry = (i: number, j: number): number => covariance[i]?.[j] ?? Number.NaN;
  return { above, below, gap, standardError: Math.sqrt(entry(a, a) + entry(b, b) - 2 * entry(a, b)) };
}
