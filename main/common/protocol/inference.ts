import { z } from 'zod';
import { AssistantMessage, FinishReason, Message, Sampling, ToolDefinition, Usage } from '../domain/chat.ts';
import { ModelConfig } from '../domain/config.ts';
import { DeviceReport, MemoryPlan } from '../domain/memory-plan.ts';
import { ErrorDataSchema } from './error-data.ts';

/**
 * The boundary between the engine and the inference process: Node IPC with `serialization: 'advanced'`, one message an
 * object below. Model text travels over the process's HTTP endpoint; here go orders, records and health.
 */
const Ids = z.array(z.number().int().nonnegative());

/** One entry of the sampled-token ledger: the canonical hash of an assistant message -> the ids that were sampled for it. */
export const LedgerEntry = z.object({ messageHash: z.string(), sampledIds: Ids });
export type LedgerEntry = z.infer<typeof LedgerEntry>;

/**
 * Everything about one completion, lossless: training data later. The exact prompt is
 * `(parent.prompt ++ parent.sampled).slice(0, parentPrefix) ++ promptTail`, so long conversations cost linear space.
 */
export const CompletionRecord = z.object({
  completionId: z.string(),
  requestId: z.string(),
  /** label registered with the bearer token: who asked */
  owner: z.string(),
  thread: z.string(),
  parentCompletionId: z.string().nullable(),
  parentPrefix: z.number().int().nonnegative(),
  promptTail: Ids,
  sampledIds: Ids,
  /** the request as it arrived, and what the ids were parsed into */
  messages: z.array(Message),
  tools: z.array(ToolDefinition),
  message: AssistantMessage,
  /** key of `message` in the sampled-token ledger */
  messageHash: z.string(),
  finishReason: FinishReason,
  sampling: Sampling,
  usage: Usage,
  /** assistant messages of the request whose sampled ids were not found and had to be rendered from text */
  ledgerMisses: z.number().int().nonnegative(),
  /** lengths of the sampled ids at which a crashed process's work was resumed */
  resumedAt: Ids,
  modelSha256: z.string(),
  adapterSha256: z.string().nullable(),
  queueMs: z.number(),
  prefillMs: z.number(),
  decodeMs: z.number(),
});
export type CompletionRecord = z.infer<typeof CompletionRecord>;

export const LoadOrder = z.object({
  model: ModelConfig,
  path: z.string(),
  sha256: z.string(),
  adapter: z.object({ path: z.string(), sha256: z.string() }).nullable(),
});
export type LoadOrder = z.infer<typeof LoadOrder>;

export const ModelStatus = z.object({
  id: z.string(),
  architecture: z.string(),
  device: z.string(),
  contextSize: z.number().int(),
  sequences: z.number().int(),
  plan: MemoryPlan,
});
export type ModelStatus = z.infer<typeof ModelStatus>;

export const ToInference = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('load'), order: LoadOrder }),
  z.object({ kind: z.literal('plan'), id: z.number().int(), order: LoadOrder }),
  z.object({ kind: z.literal('probe'), id: z.number().int() }),
  /** `owner` may ask with `token`; `ledger` restores what an earlier process knew of it */
  z.object({ kind: z.literal('grant'), token: z.string(), owner: z.string(), ledger: z.array(LedgerEntry) }),
  z.object({ kind: z.literal('revoke'), token: z.string() }),
  /** a request of a crashed process will come again: continue from these ids; `resumedAt` holds the lengths at which earlier crashes were resumed */
  z.object({
    kind: z.literal('resume'),
    owner: z.string(),
    requestId: z.string(),
    sampledIds: Ids,
    resumedAt: Ids,
  }),
  z.object({ kind: z.literal('recorded'), completionId: z.string() }),
  z.object({ kind: z.literal('record-failed'), completionId: z.string(), error: ErrorDataSchema }),
  /**
   * log-probabilities of every next id after the last positions of fixed prompts, written to a new file: float32
   * little-endian, [prompts x lastPositions, vocabulary]. Refused while completions run or wait: they would share batches.
   */
  z.object({
    kind: z.literal('score'),
    id: z.number().int(),
    prompts: z.array(Ids).min(1),
    lastPositions: z.number().int().positive(),
    output: z.string(),
  }),
  z.object({ kind: z.literal('shutdown') }),
]);
export type ToInference = z.infer<typeof ToInference>;

export const FromInference = z.discriminatedUnion('kind', [
  /** the endpoint listens; nothing is loaded yet */
  z.object({
    kind: z.literal('ready'),
    pid: z.number().int(),
    port: z.number().int(),
    socketPath: z.string().nullable(),
  }),
  z.object({ kind: z.literal('loaded'), status: ModelStatus }),
  /** HTTP and IPC are not ordered against each other: a token may be used once this has come */
  z.object({ kind: z.literal('granted'), token: z.string() }),
  z.object({ kind: z.literal('load-failed'), error: ErrorDataSchema }),
  z.object({
    kind: z.literal('plan-result'),
    id: z.number().int(),
    plan: MemoryPlan.nullable(),
    error: ErrorDataSchema.nullable(),
  }),
  z.object({
    kind: z.literal('probe-result'),
    id: z.number().int(),
    device: DeviceReport.nullable(),
    error: ErrorDataSchema.nullable(),
  }),
  z.object({
    kind: z.literal('score-result'),
    id: z.number().int(),
    /** ids of a row of the file; null when it failed */
    vocabulary: z.number().int().positive().nullable(),
    error: ErrorDataSchema.nullable(),
  }),
  /** tokens sampled since the last `progress` of this request, at most every 200 ms or 16 tokens */
  z.object({
    kind: z.literal('progress'),
    requestId: z.string(),
    owner: z.string(),
    from: z.number().int(),
    sampledIds: Ids,
  }),
  /** every second while a model is loaded; `work` grows with every batch and every sampled token */
  z.object({ kind: z.literal('pulse'), running: z.number().int(), work: z.number().int() }),
  /** the HTTP answer waits for `recorded` */
  z.object({ kind: z.literal('record'), record: CompletionRecord }),
  z.object({
    kind: z.literal('log'),
    level: z.enum(['debug', 'info', 'warn', 'error']),
    message: z.string(),
    fields: z.record(z.string(), z.unknown()).optional(),
  }),
]);
export type FromInference = z.infer<typeof FromInference>;
