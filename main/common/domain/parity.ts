import { MassError } from '../base/errors.ts';

/** Natural log-probabilities, one row a scored position, all of one vocabulary. */
export interface ScoredRows {
  readonly vocabulary: number;
  /** [positions x vocabulary] */
  readonly values: Float32Array;
}

/** The same positions scored four ways: by the trainer and as served, without and with the adapter. */
export interface ParityRows {
  readonly trainerBase: ScoredRows;
  readonly trainerAdapted: ScoredRows;
  readonly servedBase: ScoredRows;
  readonly servedAdapted: ScoredRows;
}

export interface Parity {
  readonly positions: number;
  /** mean over positions of KL(trainer || served) in nats, without the adapter: what serving costs anyway */
  readonly klBase: number;
  /** the same with the adapter */
  readonly klAdapted: number;
  /** highest `klAdapted` that passes */
  readonly klLimit: number;
  /** between the adapter's effect in the trainer and as served; null when the trainer's adapter has no effect at all */
  readonly cosine: number | null;
  /** lowest `cosine` that passes */
  readonly cosineLimit: number;
  /**
   * how much of the trained effect is served: the slope of the served effect on the trained one; 1 is all of it, and noise
   * that has nothing to do with the effect leaves it at 1. null like `cosine`
   */
  readonly strength: number | null;
  /** most that `strength` may differ from 1 */
  readonly strengthTolerance: number;
  /** root mean square over positions and ids of the adapter's effect in the trainer, in nats */
  readonly effect: number;
  /** the same of what serving changes without the adapter */
  readonly noise: number;
  /** mean over positions of KL(trainer with || without the adapter) in nats */
  readonly klEffect: number;
  readonly passed: boolean;
}

/** An adapter may make the served model differ from the trainer's by this factor more than it does without. */
export const klFactor = 1.5;
/**
 * Nats allowed on top. Without quantisation the base differs by less than 1e-6 nats, and rounding the adapter and the
 * cache to 16 bits adds up to about 1e-6, which no factor of a number near zero would allow; 1e-4 nats is a hundred times
 * that, and far below what can be seen in a sampled text.
 */
export const klEpsilon = 1e-4;
/** Share of the cosine that a right conversion can be expected to show, and the lowest that is asked in any case. */
export const cosineShare = 0.9;
/** Below it an effect is too weak to be told from what serving changes: half of that noise gives 1/3 when all is right. */
export const cosineFloor = 0.3;

/** What `strength` may differ from 1, beyond twice its standard error over the positions. */
export const strengthMargin = 0.15;

/**
 * Lowest cosine that passes. Serving adds noise of its own (quantised weights and activations) to the scores with and
 * without the adapter. Were the two independent, and as large as what is seen without the adapter, a right conversion
 * would show a cosine of effect / sqrt(effect^2 + 2 noise^2): 1 without quantisation. Both are root mean squares in nats.
 */
export const cosineLimitOf = (effect: number, noise: number): number =>
  effect === 0 ? cosineShare : Math.max(cosineFloor, (cosineShare * effect) / Math.hypot(effect, Math.SQRT2 * noise));

/**
 * Whether the served adapter is the trained one. A wrong conversion (a head order, a scaling, a module left out) shows as
 * a divergence that the base does not have, or as an effect in another direction; the second also tells for adapters
 * whose effect is smaller than what quantisation changes, and the effect's strength for a part that is missing. Effects are differences of log-probabilities, centred at each
 * position (log-probabilities are logits up to a constant), and compared over all positions at once.
 *
 * Errors: `invalid_input` when the four do not cover the same positions and vocabulary, or hold numbers not finite.
 */
export function measureParity(rows: ParityRows): Parity {
  const { trainerBase, trainerAdapted, servedBase, servedAdapted } = rows;
  const positions = checkRows(Object.values(rows) as ScoredRows[]);
  const { vocabulary } = trainerBase;
  let served = 0;
  let noise = 0;
  const products: EffectProducts[] = [];
  for (let row = 0; row < positions; row++) {
    const a = effectAt(trainerBase, trainerAdapted, row);
    const b = effectAt(servedBase, servedAdapted, row);
    const without = effectAt(trainerBase, servedBase, row);
    const product = { own: 0, cross: 0 };
    for (let id = 0; id < vocabulary; id++) {
      const [x, y] = [a[id] as number, b[id] as number];
      product.own += x * x;
      product.cross += x * y;
      served += y * y;
      noise += (without[id] as number) ** 2;
    }
    products.push(product);
  }
  const trained = products.reduce((sum, { own }) => sum + own, 0);
  const dot = products.reduce((sum, { cross }) => sum + cross, 0);
  const klBase = meanDivergence(trainerBase, servedBase);
  const klAdapted = meanDivergence(trainerAdapted, servedAdapted);
  const klLimit = klFactor * klBase + klEpsilon;
  const values = positions * vocabulary;
  const [effect, noiseSize] = [Math.sqrt(trained / values), Math.sqrt(noise / values)];
  const cosineLimit = cosineLimitOf(effect, noiseSize);
  const strength = trained === 0 ? null : dot / trained;
  const strengthTolerance = strengthMargin + 2 * slopeError(products);
  const strong = strength !== null && Math.abs(strength - 1) <= strengthTolerance;
  const cosine = trained === 0 ? null : served === 0 ? 0 : dot / Math.sqrt(trained * served);
  return {
    positions,
    klBase,
    klAdapted,
    klLimit,
    cosine,
    cosineLimit,
    strength,
    strengthTolerance,
    effect,
    noise: noiseSize,
    klEffect: meanDivergence(trainerAdapted, trainerBase),
    passed: klAdapted <= klLimit && cosine !== null && cosine >= cosineLimit && strong,
  };
}

/** At one position: the trained effect times itself, and times the served one, summed over ids. */
interface EffectProducts {
  readonly own: number;
  readonly cross: number;
}

/** Standard error of sum(cross) / sum(own) over positions (the ratio estimator of survey sampling); 0 for one position. */
function slopeError(products: readonly EffectProducts[]): number {
  const count = products.length;
  const own = products.reduce((sum, product) => sum + product.own, 0);
  if (count < 2 || own === 0) return 0;
  const slope = products.reduce((sum, product) => sum + product.cross, 0) / own;
  const squares = products.reduce((sum, product) => sum + (product.cross - slope * product.own) ** 2, 0);
  return Math.sqrt((squares * count) / (count - 1)) / own;
}

/** Mean over positions of KL(p || q) = sum over ids of p (log p - log q), in nats; rounding never makes it negative. */
export function meanDivergence(p: ScoredRows, q: ScoredRows): number {
  let sum = 0;
  for (const [at, logP] of p.values.entries()) sum += Math.exp(logP) * (logP - (q.values[at] as number));
  return Math.max(0, sum / (p.values.length / p.vocabulary));
}

function effectAt(base: ScoredRows, adapted: ScoredRows, row: number): Float64Array {
  const { vocabulary } = base;
  const from = row * vocabulary;
  const effect = new Float64Array(vocabulary);
  let sum = 0;
  for (let id = 0; id < vocabulary; id++) {
    effect[id] = (adapted.values[from + id] as number) - (base.values[from + id] as number);
    sum += effect[id] as number;
  }
  return effect.map((value) => value - sum / vocabulary);
}

function checkRows(all: readonly ScoredRows[]): number {
  const [first] = all as [ScoredRows];
  const { vocabulary, values } = first;
  const shapes = all.map((rows) => `${rows.values.length / rows.vocabulary} x ${rows.vocabulary}`);
  if (new Set(shapes).size > 1 || values.length === 0 || values.length % vocabulary !== 0)
    throw new MassError(
      'invalid_input',
      `The trainer and the served model scored different things (${shapes.join(', ')} positions x ids); train on the model that is served.`,
    );
  if (!all.every((rows) => rows.values.every(Number.isFinite)))
    throw new MassError('invalid_input', 'A scored position holds numbers that are not finite; the adapter diverged.');
  return values.length / vocabulary;
}
