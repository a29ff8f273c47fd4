import { choleskyFactor, choleskyInverse, choleskySolve, type Matrix } from './cholesky.ts';

/** One match between the candidates with these indices. A tie counts half a win each. */
export interface PairOutcome {
  readonly first: number;
  readonly second: number;
  readonly result: 'first' | 'second' | 'tie';
}

const points = (result: PairOutcome['result']): number => (result === 'tie' ? 0.5 : result === 'first' ? 1 : 0);

/**
 * Addition in ascending order. The sum then depends on the terms alone, not on how candidates are numbered, so that
 * candidates with mirrored records get the very same bits and "equal scores" means equal.
 */
const sumOf = (terms: number[]): number => terms.sort((a, b) => a - b).reduce((sum, term) => sum + term, 0);

interface Records {
  /** wins[i]: points of candidate i */
  readonly wins: number[];
  /** played[i]: matches of candidate i by opponent */
  readonly played: Map<number, number>[];
}

function recordsOf(n: number, outcomes: readonly PairOutcome[]): Records {
  const wins = new Array<number>(n).fill(0);
  const played = Array.from({ length: n }, () => new Map<number, number>());
  const add = (self: number, other: number, won: number): void => {
    wins[self] = (wins[self] ?? 0) + won;
    played[self]?.set(other, (played[self].get(other) ?? 0) + 1);
  };
  for (const { first, second, result } of outcomes) {
    const won = points(result);
    add(first, second, won);
    add(second, first, 1 - won);
  }
  return { wins, played };
}

export interface MMFit {
  /** p, mean 1 */
  readonly strengths: readonly number[];
  /** log p */
  readonly scores: readonly number[];
}

/**
 * Bradley-Terry strengths by the minorisation-maximisation iteration of arXiv 2610.12176, the fit that selects. From
 * p = 1, all candidates at once,
 *   p_i <- (W_i + 0.5) / (0.5 / (p_i + 1) + sum_j n_ij / (p_i + p_j)),
 * then p is rescaled to mean 1. W_i are the points of i, n_ij the matches between i and j. The half point keeps
 * candidates without a win, or without a loss, finite.
 */
export function fitMM(options: {
  readonly n: number;
  readonly outcomes: readonly PairOutcome[];
  readonly iterations?: number;
}): MMFit {
  const { n, outcomes, iterations = 500 } = options;
  const { wins, played } = recordsOf(n, outcomes);
  let p = new Array<number>(n).fill(1);
  for (let step = 0; step < iterations; step++) {
    const raised = p.map((own, i) => {
      const terms = [...(played[i] ?? [])].map(([j, matches]) => matches / (own + (p[j] ?? 1)));
      return ((wins[i] ?? 0) + 0.5) / (0.5 / (own + 1) + sumOf(terms));
    });
    const mean = sumOf([...raised]) / n;
    p = raised.map((value) => value / mean);
  }
  return { strengths: p, scores: p.map(Math.log) };
}

/** Prior variance of a skill (log strength) in the fit shown beside MM: a standard deviation of 1. */
export const NEWTON_PRIOR_VARIANCE = 1;

/** Half-width of a two-sided 95% normal interval in standard errors. */
export const Z95 = 1.959963984540054;

export interface NewtonFit {
  /** log strengths; they sum to 0 */
  readonly scores: readonly number[];
  readonly standardErrors: readonly number[];
  /** 95%: score -+ Z95 standard errors */
  readonly intervals: readonly { readonly low: number; readonly high: number }[];
  /** inverse of the penalised Hessian at the optimum */
  readonly covariance: Matrix;
}

const logistic = (x: number): number => 1 / (1 + Math.exp(-x));
/** log(1 + e^x) without overflow */
const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

interface Penalised {
  readonly n: number;
  readonly outcomes: readonly PairOutcome[];
  readonly priorVariance: number;
}

/** Negative log posterior, up to a constant: convex, so one minimum. */
function loss({ outcomes, priorVariance }: Penalised, theta: readonly number[]): number {
  const prior = theta.reduce((sum, t) => sum + (t * t) / (2 * priorVariance), 0);
  return outcomes.reduce((sum, { first, second, result }) => {
    const difference = (theta[first] ?? 0) - (theta[second] ?? 0);
    return sum + softplus(difference) - points(result) * difference;
  }, prior);
}

/** First and second derivatives of `loss`. */
function derivatives({ n, outcomes, priorVariance }: Penalised, theta: readonly number[]) {
  const gradient = theta.map((t) => t / priorVariance);
  const hessian = Array.from({ length: n }, (_, i) =>
    Array.from({ length: n }, (_, j) => (i === j ? 1 / priorVariance : 0)),
  );
  const add = (i: number, j: number, value: number): void => {
    const row = hessian[i];
    if (row) row[j] = (row[j] ?? 0) + value;
  };
  for (const { first, second, result } of outcomes) {
    const expected = logistic((theta[first] ?? 0) - (theta[second] ?? 0));
    const excess = expected - points(result);
    gradient[first] = (gradient[first] ?? 0) + excess;
    gradient[second] = (gradient[second] ?? 0) - excess;
    const weight = expected * (1 - expected);
    add(first, first, weight);
    add(second, second, weight);
    add(first, second, -weight);
    add(second, first, -weight);
  }
  return { gradient, hessian };
}

/**
 * Bradley-Terry skills with a normal prior N(0, priorVariance), by Newton's method with step halving: the posterior
 * mode, its standard errors and 95% intervals (normal approximation, inverse Hessian). Finite whatever the outcomes,
 * also when one candidate won or lost everything. Shown beside `fitMM`; it never selects.
 */
export function fitNewton(options: Partial<Penalised> & Pick<Penalised, 'n' | 'outcomes'>): NewtonFit {
  const problem: Penalised = { priorVariance: NEWTON_PRIOR_VARIANCE, ...options };
  let theta = new Array<number>(problem.n).fill(0);
  for (let step = 0; step < 100; step++) {
    const { gradient, hessian } = derivatives(problem, theta);
    if (Math.max(0, ...gradient.map(Math.abs)) < 1e-12) break;
    const direction = choleskySolve(choleskyFactor(hessian), gradient);
    const before = loss(problem, theta);
    let size = 1;
    let moved = theta.map((t, i) => t - size * (direction[i] ?? 0));
    while (loss(problem, moved) > before && size > 1e-6) {
      size /= 2;
      moved = theta.map((t, i) => t - size * (direction[i] ?? 0));
    }
    if (loss(problem, moved) > before) break; // at the optimum as far as doubles can tell
    theta = moved;
  }
  const covariance = choleskyInverse(choleskyFactor(derivatives(problem, theta).hessian));
  const standardErrors = covariance.map((row, i) => Math.sqrt(row[i] ?? 0));
  const intervals = theta.map((t, i) => {
    const half = Z95 * (standardErrors[i] ?? 0);
    return { low: t - half, high: t + half };
  });
  return { scores: theta, standardErrors, intervals, covariance };
}

export interface Ranked {
  readonly id: string;
  /** 1 is the best */
  readonly rank: number;
  readonly score: number;
}

/** Best first; equal scores by name (code unit order, the same on every machine). `ids` and `scores` run in parallel. */
export function rankByScore(ids: readonly string[], scores: readonly number[]): Ranked[] {
  return ids
    .map((id, i) => ({ id, score: scores[i] ?? Number.NEGATIVE_INFINITY }))
    .sort((a, b) => b.score - a.score || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0))
    .map(({ id, score }, i) => ({ id, rank: i + 1, score }));
}
