import type { ExperimentConfig } from '../../common/domain/config.ts';
import type { StageName } from '../../common/domain/events.ts';
import type { AskGate } from './gates.ts';

/** What a stage is told. Everything else it needs was given to it when it was created. */
export interface StageContext {
  readonly experimentId: string;
  readonly cycle: number;
  readonly config: ExperimentConfig;
  /** Task ids to work on; null is all of the experiment's. */
  readonly tasks: readonly string[] | null;
  /** Abort: end at once; work in flight is lost and will be done again. */
  readonly signal: AbortSignal;
  /** True once a stop "after the episodes in flight" was asked: start no further unit. */
  readonly draining: () => boolean;
  /** Runs `work` when one of the experiment's `parallel` slots is free; rejects with `cancelled` when aborted while waiting. */
  readonly slot: <T>(work: () => Promise<T>) => Promise<T>;
  /** Stops for a person where the configuration wants it; ask before what cannot be taken back. */
  readonly gate: AskGate;
  /** Says what is being done, for people; how far a stage is follows from its rows. */
  readonly doing: (what: string) => void;
}

/**
 * One stage of a cycle. `run` is idempotent: it skips units that are done, so running it again after a crash or stop
 * continues. It resolves when everything is done, or when `draining` left something undone (`complete` false).
 */
export interface Stage {
  readonly name: StageName;
  run(context: StageContext): Promise<{ readonly complete: boolean; readonly message: string }>;
}
