import { z } from 'zod';

const id = z.string().min(1);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();
const step = z.number().int().positive();

/** Events of the train and export stages. A training goes on after a kill: `training.started` comes again, and steps after its `fromStep` repeat. */
export const TrainingStarted = z.object({
  type: z.literal('training.started'),
  trainingId: id,
  experimentId: id,
  cycle: count,
  /** that played every part in the cycle; the adapter is trained on it */
  parentGenerationId: id,
  windowSetId: id,
  /** checkpoints lie in it; relative to the data folder */
  folder: z.string(),
  /** the TrainOrder, with the plan and the machine's capabilities: what the model card says of the training */
  orderHash: hash,
  /** 0, or the step of the checkpoint it goes on from */
  fromStep: count,
  steps: step,
});
export const TrainingStepped = z.object({
  type: z.literal('training.stepped'),
  trainingId: id,
  experimentId: id,
  step,
  /** nats per labelled token, mean over the windows of the step */
  loss: z.number(),
  learningRate: z.number(),
  gradNorm: z.number(),
  windows: z.array(count),
  tokens: count,
  labelledTokens: count,
  seconds: z.number(),
  peakBytes: count,
});
export const TrainingValidated = z.object({
  type: z.literal('training.validated'),
  trainingId: id,
  experimentId: id,
  /** 0: before training */
  step: count,
  /** null: no validation windows, or not finite */
  loss: z.number().nullable(),
  labelledTokens: count,
});
export const TrainingCheckpointed = z.object({
  type: z.literal('training.checkpointed'),
  trainingId: id,
  experimentId: id,
  step,
  /** relative to the data folder */
  folder: z.string(),
  bytes: count,
  adapterSha256: hash,
});
export const TrainingEnded = z.object({
  type: z.literal('training.ended'),
  trainingId: id,
  experimentId: id,
  state: z.enum(['finished', 'stopped', 'diverged', 'failed']),
  step: count,
  message: z.string(),
});

/** Which checkpoint becomes the next generation. The last choice of a training counts. */
export const CheckpointChosen = z.object({
  type: z.literal('checkpoint.chosen'),
  trainingId: id,
  experimentId: id,
  step,
  loss: z.number().nullable(),
  by: z.enum(['lowest-validation-loss', 'person']),
  note: z.string(),
});
/** The adapter as it is served: the parent's adapters and this one, concatenated by rank. */
export const AdapterExported = z.object({
  type: z.literal('adapter.exported'),
  trainingId: id,
  experimentId: id,
  step,
  /** of the GGUF, which names its file in the data folder's adapters/ */
  adapterSha256: hash,
  bytes: count,
  rank: count,
});
export const ParityMeasured = z.object({
  type: z.literal('parity.measured'),
  trainingId: id,
  experimentId: id,
  step,
  adapterSha256: hash,
  passed: z.boolean(),
  /** the Parity of common/domain/parity.ts with prompts and greedy continuations */
  reportHash: hash,
});
