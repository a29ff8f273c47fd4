import type { GenerationRow } from '../store/repositories/experiments.ts';

export interface ScoreRequest {
  readonly prompts: readonly (readonly number[])[];
  /** positions scored per prompt, counted from its end */
  readonly lastPositions: number;
  /** a new file: float32 little-endian log-probabilities, [prompts x lastPositions, vocabulary] */
  readonly output: string;
  readonly signal: AbortSignal;
}

/**
 * What a generation, registered or not yet, thinks comes next when it is served. The process has ended when it resolves;
 * whoever calls holds the device. Errors: `infrastructure`, `cancelled`, and what serving the model says.
 */
export type ScoreServed = (
  generation: GenerationRow,
  request: ScoreRequest,
) => Promise<{ readonly vocabulary: number }>;
