import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cosineLimitOf, klEpsilon, meanDivergence, measureParity, type ScoredRows } from './parity.ts';

/** Rows of probabilities as log-probabilities. */
const rows = (...probabilities: number[][]): ScoredRows => ({
  vocabulary: probabilities[0]?.length ?? 0,
  values: Float32Array.from(probabilities.flat().map(Math.log)),
});

/** Softmax of logits, as log-probabilities. */
const softmax = (...logits: number[][]): ScoredRows =>
  rows(
    ...logits.map((row) => {
      const total = row.reduce((sum, value) => sum + Math.exp(value), 0);
      return row.map((value) => Math.exp(value) / total);
    }),
  );

const even = rows([0.5, 0.5]);

describe('divergence', () => {
  it('is the mean over positions of sum p (log p - log q)', () => {
    // position 1: 0.75 ln 1.5 + 0.25 ln 0.5 = 0.130812; position 2: 0
    expect(meanDivergence(rows([0.75, 0.25], [0.5, 0.5]), rows([0.5, 0.5], [0.5, 0.5]))).toBeCloseTo(0.065406, 6);
  });

  it('is never negative and is 0 for equal rows', () => {
    const logits = fc.array(fc.double({ min: -8, max: 8, noNaN: true }), { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(logits, logits, (p, q) => {
        expect(meanDivergence(softmax(p), softmax(q))).toBeGreaterThanOrEqual(0);
        expect(meanDivergence(softmax(p), softmax(p))).toBe(0);
      }),
    );
  });
});

describe('parity', () => {
  it('holds for the same model on both sides, with numbers that can be worked by hand', () => {
    const adapted = rows([0.75, 0.25]);
    const parity = measureParity({
      trainerBase: even,
      trainerAdapted: adapted,
      servedBase: even,
      servedAdapted: adapted,
    });
    expect(parity).toMatchObject({ positions: 1, klBase: 0, klAdapted: 0, klLimit: klEpsilon, passed: true });
    expect(parity.cosine).toBeCloseTo(1, 12);
    // differences ln 1.5 and ln 0.5, centred: +-0.549306
    expect(parity.effect).toBeCloseTo(0.549306, 6);
    expect(parity.klEffect).toBeCloseTo(0.130812, 6);
  });

  it('allows with the adapter 1.5 times the divergence of the base, and no more', () => {
    const base = { trainerBase: even, servedBase: rows([0.6, 0.4]) };
    // KL(0.5, 0.5 || 0.6, 0.4) = 0.5 ln(0.5/0.6) + 0.5 ln(0.5/0.4) = 0.020411; limit 0.0307165
    const adapted = rows([0.8, 0.2]);
    const inside = measureParity({ ...base, trainerAdapted: adapted, servedAdapted: rows([0.89, 0.11]) });
    expect(inside.klBase).toBeCloseTo(0.020411, 6);
    expect(inside.klLimit).toBeCloseTo(0.0307165, 6);
    expect(inside.klAdapted).toBeCloseTo(0.0342795, 6); // 0.8 ln(0.8/0.89) + 0.2 ln(0.2/0.11)
    expect(inside.passed).toBe(false);
    const closer = measureParity({ ...base, trainerAdapted: adapted, servedAdapted: rows([0.87, 0.13]) });
    expect(closer.klAdapted).toBeCloseTo(0.0190518, 6); // 0.8 ln(0.8/0.87) + 0.2 ln(0.2/0.13)
    expect(closer.passed).toBe(true);
  });

  it('fails when the effect points elsewhere, although it is small', () => {
    const small = 0.002;
    const effectOf = (served: number[]) =>
      measureParity({
        trainerBase: softmax([0, 0, 0, 0]),
        trainerAdapted: softmax([small, -small, 0, 0]),
        servedBase: softmax([0, 0, 0, 0]),
        servedAdapted: softmax(served),
      });
    const wrong = effectOf([0, 0, small, -small]);
    expect(wrong.klAdapted).toBeLessThan(wrong.klLimit);
    expect(wrong.cosine).toBeCloseTo(0, 3);
    expect(wrong.passed).toBe(false);
    expect(effectOf([0, 0, 0, 0])).toMatchObject({ cosine: 0, passed: false }); // the adapter was not applied
    expect(effectOf([small, -small, 0, 0]).passed).toBe(true);
  });

  it('asks less of the direction where serving adds noise of its own, and never less than 0.3', () => {
    const [e, n] = [0.01, 0.01];
    const noisy = (servedAdapted: number[]) =>
      measureParity({
        trainerBase: softmax([0, 0, 0, 0, 0, 0]),
        trainerAdapted: softmax([e, -e, 0, 0, 0, 0]),
        servedBase: softmax([0, 0, n, -n, 0, 0]),
        servedAdapted: softmax(servedAdapted),
      });
    // The same noise cancels; other noise of its size leaves e / sqrt(e^2 + 2 n^2) = 1 / sqrt(3).
    const same = noisy([e, -e, n, -n, 0, 0]);
    expect(same.noise).toBeCloseTo(same.effect, 4);
    expect(same.cosineLimit).toBeCloseTo(0.9 / Math.sqrt(3), 4);
    expect(same.cosine).toBeCloseTo(1, 4);
    const independent = noisy([e, -e, 0, 0, n, -n]);
    expect(independent.cosine).toBeCloseTo(1 / Math.sqrt(3), 3);
    expect([same.passed, independent.passed]).toEqual([true, true]);
    // Not applied, applied the other way round, and applied elsewhere.
    for (const wrong of [noisy([0, 0, 0, 0, n, -n]), noisy([-e, e, n, -n, 0, 0]), noisy([0, 0, n, -n, e, -e])])
      expect([wrong.klAdapted < wrong.klLimit, wrong.passed]).toEqual([true, false]);
    expect(cosineLimitOf(1, 0)).toBe(0.9);
    expect(cosineLimitOf(1, 100)).toBe(0.3);
  });

  it('asks for all of the effect: noise beside it leaves its strength at 1, a lost part does not', () => {
    const e = 0.01;
    const at = (served: number) =>
      measureParity({
        trainerBase: softmax([0, 0, 0, 0], [0, 0, 0, 0]),
        trainerAdapted: softmax([e, -e, 0, 0], [e, -e, 0, 0]),
        // Noise that has nothing to do with the effect, of its size.
        servedBase: softmax([0, 0, e, -e], [0, 0, -e, e]),
        servedAdapted: softmax([served, -served, 0, 0], [served, -served, 0, 0]),
      });
    expect(at(e).strength).toBeCloseTo(1, 4);
    expect(at(e).strengthTolerance).toBeCloseTo(0.15, 4);
    expect(at(0.8 * e).strength).toBeCloseTo(0.8, 4);
    expect([e, 0.9 * e, 1.1 * e, 0.8 * e, 1.2 * e].map((served) => at(served).passed)).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });

  it('widens what it allows by the spread over positions', () => {
    const e = 0.01;
    const parity = measureParity({
      trainerBase: softmax([0, 0], [0, 0]),
      trainerAdapted: softmax([e, -e], [e, -e]),
      servedBase: softmax([0, 0], [0, 0]),
      servedAdapted: softmax([0.9 * e, -0.9 * e], [1.1 * e, -1.1 * e]),
    });
    // Slopes 0.9 and 1.1: mean 1, standard deviation sqrt(0.02), standard error of two of them 0.1.
    expect(parity.strength).toBeCloseTo(1, 4);
    expect(parity.strengthTolerance).toBeCloseTo(0.35, 4);
  });

  it('takes the effect up to a constant: log-probabilities are logits up to one', () => {
    const parity = measureParity({
      trainerBase: softmax([0, 1, 2]),
      trainerAdapted: softmax([5, 7, 6]),
      servedBase: softmax([3, 3, 3]),
      servedAdapted: softmax([8, 9, 7]),
    });
    // trainer (5, 6, 4) - 5 = (0, 1, -1); served (5, 6, 4) - 5 the same
    expect(parity.cosine).toBeCloseTo(1, 6);
  });

  it('does not pass an adapter without any effect in the trainer', () => {
    const parity = measureParity({ trainerBase: even, trainerAdapted: even, servedBase: even, servedAdapted: even });
    expect(parity).toMatchObject({ cosine: null, effect: 0, passed: false });
  });

  it('refuses rows of different positions or vocabularies, and numbers that are not finite', () => {
    const good = { trainerBase: even, trainerAdapted: even, servedBase: even, servedAdapted: even };
    const more = rows([0.5, 0.5], [0.5, 0.5]);
    const wider = rows([0.5, 0.25, 0.25]);
    const broken = { vocabulary: 2, values: Float32Array.from([Number.NEGATIVE_INFINITY, 0]) };
    for (const servedAdapted of [more, wider, broken])
      expect(() => measureParity({ ...good, servedAdapted })).toThrowError(
        expect.objectContaining({ code: 'invalid_input' }),
      );
  });
});
