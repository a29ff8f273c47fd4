import type { GenerateRequest } from '../model/served-model.ts';

/**
 * Largest candidate set. Sorting a whole 248k vocabulary costs about 20 ms a token; beyond the 512 likeliest
 * candidates the probability mass is below what topP 0.99 would keep, except at temperatures nobody runs.
 */
export const TOP_K_CAP = 512;

export interface SamplerOptions {
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  /** unsigned 32 bits, what the sampler takes */
  readonly seed: number;
}

/**
 * `topK` 0 means no limit and becomes the cap. A resumed request draws from a stream of its own: with the seed as it
 * is, the sampler would repeat the draws of the first tokens.
 */
export function samplerOptions(
  request: Pick<GenerateRequest, 'temperature' | 'topP' | 'topK' | 'seed'>,
  resumed: number,
): SamplerOptions {
  return {
    temperature: request.temperature,
    topP: request.topP,
    topK: request.topK === 0 ? TOP_K_CAP : Math.min(request.topK, TOP_K_CAP),
    seed: resumed === 0 ? request.seed >>> 0 : mix(request.seed >>> 0, resumed),
  };
}

/** Integer hash of two 32-bit words (finalizer of MurmurHash3, Austin Appleby, public domain). */
function mix(seed: number, salt: number): number {
  let h = (seed ^ Math.imul(salt, 0x9e3779b1)) >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
