import { z } from 'zod';
import { TrainingStepped } from '../domain/training-events.ts';
import { ErrorDataSchema } from './error-data.ts';

/**
 * The boundary between the engine and the trainer sidecar (native/trainer): one JSON object a line, commands on its
 * standard input, events on its standard output. Everything else it prints goes to standard error.
 * resources/trainer/protocol.schema.json is generated from these schemas; a test fails when it drifts.
 */
export const trainerProtocol = 1;

const count = z.number().int().nonnegative();
const positive = z.number().int().positive();
const hash = z.string().regex(/^[0-9a-f]{64}$/);

/** Where base weights come from: a Hugging Face folder (safetensors), or a GGUF where reading it is exact. */
export const TrainerBase = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('folder'), path: z.string() }),
  z.object({ kind: z.literal('gguf'), path: z.string() }),
]);
export type TrainerBase = z.infer<typeof TrainerBase>;

/** A model as the trainer knows it: base plus the adapters (PEFT folders) merged into it, oldest first. */
export const TrainerModel = z.object({ base: TrainerBase, merged: z.array(z.string()) });
export type TrainerModel = z.infer<typeof TrainerModel>;

export const TrainerRecipe = z.object({
  rank: positive,
  alpha: z.number().positive(),
  dropout: z.number().min(0).max(0.9),
  steps: positive,
  windowsPerStep: positive,
  learningRate: z.number().positive(),
  warmupSteps: count,
  /** the cosine ends at this share of the peak learning rate */
  finalShare: z.number().min(0).max(1),
  betas: z.tuple([z.number(), z.number()]),
  weightDecay: z.number().min(0),
  gradNorm: z.number().positive(),
  /** probability that a window is the orchestrator's */
  orchestratorShare: z.number().min(0).max(1),
  checkpointEvery: positive,
  validateEvery: positive,
  /** stop at a gate when validation loss rose this often in a row; 0: never */
  patience: count,
  /** labelled positions per chunk of the cross-entropy */
  lossChunk: positive,
  seed: z.number().int(),
});
export type TrainerRecipe = z.infer<typeof TrainerRecipe>;

export const TrainerMachine = z.object({
  device: z.enum(['auto', 'cpu', 'cuda', 'mps']),
  /** 0: as many as the machine has cores */
  threads: count,
  /** train a hybrid model on CUDA without flash-linear-attention */
  allowSlowKernels: z.boolean(),
});
export type TrainerMachine = z.infer<typeof TrainerMachine>;

export const TrainOrder = z.object({
  model: TrainerModel,
  /** vocabulary of the served GGUF: the identity check's other side */
  servedGguf: z.string(),
  /** a window set (common/domain/window-set.ts) */
  windows: z.string(),
  /** checkpoints go to <output>/step-000050; the newest complete one of the same order is continued */
  output: z.string(),
  recipe: TrainerRecipe,
  machine: TrainerMachine,
});
export type TrainOrder = z.infer<typeof TrainOrder>;

/**
 * Log-probabilities of every next id after the last positions of fixed prompts, for the parity gate. The file is float32
 * little-endian, [prompts x lastPositions, vocabulary], a prompt's positions in order. Refuses an existing file.
 */
export const ScoreOrder = z.object({
  model: TrainerModel,
  /** PEFT folder, not merged */
  adapter: z.string().nullable(),
  prompts: z.array(z.array(count)),
  /** positions scored per prompt, counted from its end: 1 is the last only */
  lastPositions: positive,
  output: z.string(),
  machine: TrainerMachine,
});
export type ScoreOrder = z.infer<typeof ScoreOrder>;

/** Base + merged + adapter -> a Hugging Face folder of BF16 safetensors. Refuses an existing folder. */
export const MergeOrder = z.object({
  model: TrainerModel,
  adapter: z.string(),
  output: z.string(),
  machine: TrainerMachine,
});
export type MergeOrder = z.infer<typeof MergeOrder>;

/** PEFT adapters, oldest first, -> one GGUF adapter (f16), concatenated by rank when there are several. */
export const ConvertOrder = z.object({
  model: TrainerModel,
  adapters: z.array(z.string()).min(1),
  output: z.string(),
  type: z.enum(['f16', 'f32']),
  /** folder of llama.cpp's sources, whose conversion scripts are run */
  llamaCpp: z.string(),
});
export type ConvertOrder = z.infer<typeof ConvertOrder>;

/** A merged Hugging Face folder -> GGUF. */
export const ConvertModelOrder = z.object({
  folder: z.string(),
  output: z.string(),
  type: z.enum(['bf16', 'f16', 'q8_0', 'f32']),
  llamaCpp: z.string(),
});
export type ConvertModelOrder = z.infer<typeof ConvertModelOrder>;

export const ToTrainer = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('plan'), order: TrainOrder }),
  z.object({ kind: z.literal('start'), order: TrainOrder }),
  z.object({ kind: z.literal('score'), order: ScoreOrder }),
  z.object({ kind: z.literal('merge'), order: MergeOrder }),
  z.object({ kind: z.literal('convert'), order: ConvertOrder }),
  z.object({ kind: z.literal('convert-model'), order: ConvertModelOrder }),
  z.object({ kind: z.literal('pause') }),
  z.object({ kind: z.literal('resume') }),
  /** checkpoint after the step in progress, then end */
  z.object({ kind: z.literal('stop-after-step') }),
  z.object({ kind: z.literal('stop-now') }),
]);
export type ToTrainer = z.infer<typeof ToTrainer>;

export const Capabilities = z.object({
  python: z.string(),
  torch: z.string(),
  transformers: z.string(),
  peft: z.string(),
  device: z.string(),
  deviceBytes: count,
  threads: positive,
  /** flash-linear-attention can be imported */
  fastKernels: z.boolean(),
});
export type Capabilities = z.infer<typeof Capabilities>;

export const TrainingPlan = z.object({
  parameters: count,
  trainable: count,
  adaptedModules: count,
  longestWindow: positive,
  weightsBytes: count,
  adapterBytes: count,
  activationsBytes: count,
  neededBytes: count,
  freeBytes: count,
  fits: z.boolean(),
  floatingPointOperations: z.number().positive(),
  hours: z.number().nonnegative(),
  /** how `hours` was come by */
  assumption: z.string(),
});
export type TrainingPlan = z.infer<typeof TrainingPlan>;

/** What the event log keeps of a step, before it is known whose it is. */
export const TrainerStep = TrainingStepped.omit({ type: true, trainingId: true, experimentId: true });
export type TrainerStep = z.infer<typeof TrainerStep>;

export const FromTrainer = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('hello'),
    protocol: z.literal(trainerProtocol),
    pid: positive,
    capabilities: Capabilities,
  }),
  z.object({ kind: z.literal('plan'), plan: TrainingPlan }),
  /** 0 when training begins, else the checkpoint it goes on from */
  z.object({ kind: z.literal('started'), fromStep: count, adaptedModules: count, orderSha256: hash }),
  z.object({ kind: z.literal('step'), ...TrainerStep.shape }),
  /** token-weighted mean over every labelled token of the validation windows */
  z.object({ kind: z.literal('validation'), step: count, loss: z.number().nullable(), labelledTokens: count }),
  z.object({ kind: z.literal('checkpoint'), step: positive, folder: z.string(), bytes: count, adapterSha256: hash }),
  z.object({ kind: z.literal('scored'), output: z.string(), vocabulary: positive }),
  z.object({ kind: z.literal('merged'), output: z.string(), sha256: hash }),
  z.object({ kind: z.literal('converted'), output: z.string(), sha256: hash, bytes: count, rank: count }),
  z.object({
    kind: z.literal('log'),
    level: z.enum(['debug', 'info', 'warn', 'error']),
    message: z.string(),
    fields: z.record(z.string(), z.unknown()).optional(),
  }),
  z.object({ kind: z.literal('error'), error: ErrorDataSchema }),
  z.object({
    kind: z.literal('done'),
    /** diverged: a non-finite loss, or validation rose `patience` times; the checkpoints stand */
    state: z.enum(['finished', 'stopped', 'diverged']),
    step: count,
    message: z.string(),
  }),
]);
export type FromTrainer = z.infer<typeof FromTrainer>;
