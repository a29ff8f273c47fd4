import { Z95 } from './bradley-terry.ts';

export interface Rate {
  /** successes / trials; null without a trial */
  readonly rate: number | null;
  readonly low: number;
  readonly high: number;
}

/**
 * A rate with its Wilson score interval (E. B. Wilson, 1927), 95% unless z says otherwise: sensible for few trials and
 * for rates near 0 and 1, and always within [0, 1]. Without a trial nothing is known: 0 to 1.
 */
export function wilsonInterval(options: { successes: number; trials: number; z?: number }): Rate {
  const { successes, trials, z = Z95 } = options;
  if (trials <= 0) return { rate: null, low: 0, high: 1 };
  const rate = successes / trials;
  const z2 = (z * z) / trials;
  const centre = rate + z2 / 2;
  const half = z * Math.sqrt((rate * (1 - rate)) / trials + z2 / (4 * trials));
  const low = (centre - half) / (1 + z2);
  const high = (centre + half) / (1 + z2);
  return { rate, low: Math.min(Math.max(0, low), rate), high: Math.max(Math.min(1, high), rate) };
}
