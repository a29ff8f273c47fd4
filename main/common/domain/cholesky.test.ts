import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { choleskyFactor, choleskyInverse, choleskySolve } from './cholesky.ts';

describe('Cholesky', () => {
  it('factors, solves and inverts a worked matrix', () => {
    const a = [
      [4, 2],
      [2, 5],
    ];
    const lower = choleskyFactor(a);
    expect(lower).toEqual([
      [2, 0],
      [1, 2],
    ]);
    expect(choleskySolve(lower, [8, 12])).toEqual([1, 2]); // 4+4, 2+10
    const inverse = choleskyInverse(lower).flat();
    [5 / 16, -2 / 16, -2 / 16, 4 / 16].forEach((v, i) => {
      expect(inverse[i]).toBeCloseTo(v, 14);
    });
  });

  it('solves random positive definite systems', () => {
    const entry = fc.double({ min: -2, max: 2, noNaN: true });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }).chain((n) =>
          fc.record({
            b: fc.array(fc.array(entry, { minLength: n, maxLength: n }), { minLength: n, maxLength: n }),
            x: fc.array(entry, { minLength: n, maxLength: n }),
          }),
        ),
        ({ b, x }) => {
          // b b^T + I is positive definite, with every eigenvalue at least 1
          const a = b.map((r, i) => b.map((s, j) => r.reduce((t, v, k) => t + v * s[k]!, i === j ? 1 : 0)));
          const rhs = a.map((r) => r.reduce((t, v, k) => t + v * x[k]!, 0));
          choleskySolve(choleskyFactor(a), rhs).forEach((v, i) => {
            expect(v).toBeCloseTo(x[i]!, 8);
          });
        },
      ),
    );
  });

  it('refuses a matrix that is not positive definite', () => {
    for (const a of [[[0]], [[-1]], [[Number.NaN]], [[1, 2], [2, 1]]]) // biome-ignore format: small matrices
      expect(() => choleskyFactor(a)).toThrow(/positive definite/);
  });
});
