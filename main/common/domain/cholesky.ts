import { MassError } from '../base/errors.ts';

/** A dense square matrix, row by row. */
export type Matrix = readonly (readonly number[])[];

const at = (m: Matrix, i: number, j: number): number => m[i]?.[j] ?? 0;

/**
 * Lower triangular L with L L^T = a, for a symmetric positive definite a (its lower triangle is read).
 * Errors: `internal` when a is not positive definite. O(n^3 / 6), meant for n up to a few hundred.
 */
export function choleskyFactor(a: Matrix): number[][] {
  const lower: number[][] = a.map(() => new Array<number>(a.length).fill(0));
  for (let i = 0; i < a.length; i++) {
    const row = lower[i] as number[];
    for (let j = 0; j <= i; j++) {
      let sum = at(a, i, j);
      for (let k = 0; k < j; k++) sum -= at(lower, i, k) * at(lower, j, k);
      if (i !== j) {
        row[j] = sum / at(lower, j, j);
        continue;
      }
      if (!(sum > 0)) throw new MassError('internal', 'A matrix that must be positive definite is not.');
      row[j] = Math.sqrt(sum);
    }
  }
  return lower;
}

/** x with L L^T x = b, given the factor L. */
export function choleskySolve(lower: Matrix, b: readonly number[]): number[] {
  const n = lower.length;
  const x = b.slice(0, n);
  for (let i = 0; i < n; i++) {
    let sum = x[i] ?? 0;
    for (let k = 0; k < i; k++) sum -= at(lower, i, k) * (x[k] ?? 0);
    x[i] = sum / at(lower, i, i);
  }
  for (let i = n - 1; i >= 0; i--) {
    let sum = x[i] ?? 0;
    for (let k = i + 1; k < n; k++) sum -= at(lower, k, i) * (x[k] ?? 0);
    x[i] = sum / at(lower, i, i);
  }
  return x;
}

/** The inverse of L L^T, column by column (it is symmetric, so columns are rows). */
export const choleskyInverse = (lower: Matrix): number[][] =>
  lower.map((_, i) =>
    choleskySolve(
      lower,
      lower.map((_, j) => (i === j ? 1 : 0)),
    ),
  );
