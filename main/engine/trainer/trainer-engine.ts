import type {
  Capabilities,
  ConvertModelOrder,
  ConvertOrder,
  FromTrainer,
  MergeOrder,
  ScoreOrder,
  TrainingPlan,
  TrainOrder,
} from '../../common/protocol/trainer.ts';

type EventOfKind<K extends FromTrainer['kind']> = Extract<FromTrainer, { kind: K }>;

export interface TrainOptions {
  readonly onEvent: (event: EventOfKind<'started' | 'step' | 'validation' | 'checkpoint'>) => void;
  /** end at once: what is not in a checkpoint is trained again */
  readonly signal: AbortSignal;
  /** true once the step in progress shall be the last: it is checkpointed, then `done` says "stopped" */
  readonly draining: () => boolean;
}

/**
 * What trains, scores, merges and converts. Every call is one sidecar process that has ended, and whose memory is free,
 * before the promise settles. Whoever calls holds the device.
 *
 * Errors of all: what the sidecar says (`invalid_input`, `not_found`, `prerequisite` with details.reason "out_of_memory" or
 * "disk_full", ...); `infrastructure` when it dies, is silent or speaks garbage; `cancelled`; `prerequisite` without its
 * Python environment.
 */
export interface TrainerEngine {
  capabilities(signal: AbortSignal): Promise<Capabilities>;
  plan(order: TrainOrder, signal: AbortSignal): Promise<TrainingPlan>;
  train(order: TrainOrder, options: TrainOptions): Promise<EventOfKind<'done'>>;
  score(order: ScoreOrder, signal: AbortSignal): Promise<EventOfKind<'scored'>>;
  merge(order: MergeOrder, signal: AbortSignal): Promise<EventOfKind<'merged'>>;
  convert(order: ConvertOrder, signal: AbortSignal): Promise<EventOfKind<'converted'>>;
  convertModel(order: ConvertModelOrder, signal: AbortSignal): Promise<EventOfKind<'converted'>>;
}
