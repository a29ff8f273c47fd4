import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { wilsonInterval } from './wilson.ts';

describe('Wilson interval', () => {
  it('gives worked values', () => {
    const eight = wilsonInterval({ successes: 8, trials: 10 });
    expect(eight.rate).toBe(0.8);
    expect(eight.low).toBeCloseTo(0.4902, 4);
    expect(eight.high).toBeCloseTo(0.9433, 4);
    // no success in n: the upper end is z^2 / (n + z^2)
    const none = wilsonInterval({ successes: 0, trials: 10 });
    expect(none.low).toBe(0);
    expect(none.high).toBeCloseTo(3.841458820694124 / 13.841458820694124, 12);
    // z = 1, 1 of 2: centre (1/2 + 1/4) / (3/2) = 1/2, half sqrt(1/8 + 1/16) / (3/2)
    const half = wilsonInterval({ successes: 1, trials: 2, z: 1 });
    expect(half.high - 0.5).toBeCloseTo(Math.sqrt(3 / 16) / 1.5, 14);
  });

  it('knows nothing without a trial', () => {
    expect(wilsonInterval({ successes: 0, trials: 0 })).toEqual({ rate: null, low: 0, high: 1 });
  });

  it('encloses the rate within [0, 1], mirrors, and solves (p - rate)^2 = z^2 p(1-p)/n at both ends', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5000 }), fc.double({ min: 0, max: 1, noNaN: true }), (trials, share) => {
        const successes = Math.round(share * trials);
        const { rate, low, high } = wilsonInterval({ successes, trials, z: 2 });
        expect(0 <= low && low <= rate! && rate! <= high && high <= 1).toBe(true);
        const mirrored = wilsonInterval({ successes: trials - successes, trials, z: 2 });
        expect(mirrored.low).toBeCloseTo(1 - high, 12);
        for (const p of [low, high]) expect((p - rate!) ** 2).toBeCloseTo((4 * p * (1 - p)) / trials, 12);
      }),
    );
  });
});
