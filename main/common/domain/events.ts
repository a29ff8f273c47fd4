import { z } from 'zod';
import { FinishReason, Sampling, Usage } from './chat.ts';
import { EpisodeChecked, FindingDecided, FindingRecorded, GateDecided, GateOpened } from './integrity-events.ts';
import { WindowsRendered } from './render-events.ts';
import { ComparisonCompleted, ComparisonOpened, RolloutSetCompleted, RolloutSetCreated } from './rollout-events.ts';
import { Domain } from './task.ts';
import {
  AdapterExported,
  CheckpointChosen,
  ParityMeasured,
  TrainingCheckpointed,
  TrainingEnded,
  TrainingStarted,
  TrainingStepped,
  TrainingValidated,
} from './training-events.ts';

/**
 * The event log. Everything that happens is one of these, appended in the transaction that changes the rows it
 * describes; the rows are the fold of the log. An event holds every column it sets; bodies are artifact hashes.
 * A tag, once released, keeps its meaning; new facts get new tags or optional fields.
 */
const id = z.string().min(1);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();

export const StageName = z.enum([
  'search',
  'collect',
  'rank',
  'select',
  'render',
  'train',
  'export',
  'rollout',
  'compare',
]);
export type StageName = z.infer<typeof StageName>;
export const Split = z.enum(['train', 'test']);
export const RunState = z.enum(['running', 'done', 'stopped', 'gated', 'failed', 'interrupted']);
export type RunState = z.infer<typeof RunState>;
export const AttemptOutcome = z.enum(['completed', 'halted', 'infrastructure', 'interrupted', 'cancelled']);
export type AttemptOutcome = z.infer<typeof AttemptOutcome>;
export const JudgmentPurpose = z.enum(['reference', 'arbitration', 'retained', 'final', 'match', 'compare']);
export type JudgmentPurpose = z.infer<typeof JudgmentPurpose>;
export const PairResult = z.enum(['first', 'second', 'tie']);
export type PairResult = z.infer<typeof PairResult>;

const event = <T extends string, S extends z.ZodRawShape>(type: T, shape: S) =>
  z.object({ type: z.literal(type), ...shape });

export const ExperimentCreated = event('experiment.created', {
  experimentId: id,
  name: id,
  configJson: z.string(),
  configHash: hash,
  massVersion: z.string(),
});
export const ModelRegistered = event('model.registered', {
  modelId: id,
  path: id,
  bytes: count,
  sha256: hash,
  architecture: z.string(),
  source: z.string(),
});
export const GenerationRegistered = event('generation.registered', {
  generationId: id,
  experimentId: id,
  number: count, // 0 is L0
  modelId: id,
  modelSha256: hash,
  parentGenerationId: id.nullable(),
  /** of the GGUF in the data folder's adapters/: every adapter of the lineage as one; null: the model alone */
  adapterSha256: hash.nullable(),
  /** Markdown: what it was made of; absent for L0 */
  cardHash: hash.optional(),
});
export const TaskRegistered = event('task.registered', {
  experimentId: id,
  taskId: id,
  number: count,
  title: z.string(),
  domain: Domain,
  split: Split,
  contentHash: hash,
  manifestHash: hash,
  promptHash: hash,
  folder: z.string(),
});
export const RunStarted = event('run.started', {
  runId: id,
  experimentId: id,
  cycle: count, // the first; 0 is outside the cycles (rollouts, comparisons)
  /** all of them, when there are several */
  cycles: z.array(count).optional(),
  stages: z.array(StageName),
  tasks: z.array(id).nullable(),
  enginePid: count,
});
export const RunEnded = event('run.ended', {
  runId: id,
  experimentId: id,
  state: RunState,
  message: z.string(),
  errorJson: z.string().nullable(),
});
export const StageStarted = event('stage.started', { experimentId: id, cycle: count, stage: StageName, runId: id });
export const StageEnded = event('stage.ended', {
  experimentId: id,
  cycle: count,
  stage: StageName,
  runId: id,
  state: RunState,
  message: z.string(),
});
export const Notice = event('notice', {
  experimentId: id.nullable(),
  level: z.enum(['info', 'warning']),
  code: z.string(),
  message: z.string(),
});

export const WorkflowAdded = event('workflow.added', {
  workflowId: id,
  experimentId: id,
  cycle: count,
  taskId: id,
  version: count,
  parentVersion: count.nullable(),
  author: z.enum(['seed', 'proposer', 'person']),
  status: z.enum(['proposed', 'proposal_failed']),
  blockHash: hash.nullable(), // null when the proposal failed
  partsJson: z.string(), // derived view of the block; "{}" when it failed
  proposalId: id.nullable(),
  note: z.string(),
});
export const ProposalRecorded = event('proposal.recorded', {
  proposalId: id,
  experimentId: id,
  cycle: count,
  taskId: id,
  version: count,
  basedOn: count,
  valid: z.boolean(),
  tries: count,
  seed: z.number().int(),
  contentHash: hash, // everything the proposer answered: changes, reasons, expected impact, checks, problems
  promptSha256: hash,
});
export const ChampionDecided = event('champion.decided', {
  experimentId: id,
  cycle: count,
  taskId: id,
  policy: z.enum(['fixed-reference', 'elite']),
  version: count,
  provenWin: z.boolean(),
});

export const EpisodePlanned = event('episode.planned', {
  episodeId: id,
  experimentId: id,
  cycle: count,
  stage: StageName, // search, collect or rollout
  taskId: id,
  /** null: the bare prompt (reference run) */
  workflowVersion: count.nullable(),
  replicate: count,
  seed: z.number().int(),
  /** of a rollout: the set it belongs to */
  setId: id.optional(),
});
export const AttemptStarted = event('attempt.started', {
  attemptId: id,
  episodeId: id,
  experimentId: id,
  number: count, // 1, 2, ...
  generationId: id,
  workspace: z.string(), // relative to the data folder
  sandboxMode: z.enum(['bubblewrap', 'host']),
  promptHash: hash,
  inputsHash: hash, // manifest of the files placed in the workspace
  runtime: z.string(),
  runtimePromptsJson: z.string(), // sha256 of every prompt file used
});
export const AttemptEnded = event('attempt.ended', {
  attemptId: id,
  episodeId: id,
  experimentId: id,
  outcome: AttemptOutcome,
  haltReason: z.string().nullable(),
  ending: z.string(),
  turns: count,
  delegations: count,
  toolCalls: count,
  promptTokens: count,
  generatedTokens: count,
  bodyHash: hash.nullable(), // final report and last tool calls
  filesHash: hash.nullable(), // manifest of the workspace afterwards
  workspaceBytes: count,
});

export const OwnerKind = z.enum(['attempt', 'presentation', 'proposal']);
export type OwnerKind = z.infer<typeof OwnerKind>;
export const ThreadStarted = event('thread.started', {
  threadId: id,
  experimentId: id,
  ownerKind: OwnerKind,
  ownerId: id,
  role: z.enum(['orchestrator', 'worker', 'evaluator', 'proposer']),
  name: z.string(),
  parentThreadId: id.nullable(),
  parentCallId: z.string().nullable(),
  assignmentHash: hash.nullable(),
});
export const ThreadEnded = event('thread.ended', { threadId: id, experimentId: id, outcome: z.string() });
export const CompletionRecorded = event('completion.recorded', {
  completionId: id,
  requestId: id,
  experimentId: id,
  threadId: id,
  parentCompletionId: id.nullable(),
  /** the exact prompt is (parent.prompt ++ parent.sampled)[0, parentPrefix) ++ promptTail */
  parentPrefix: count,
  promptTailHash: hash,
  promptTokens: count,
  sampledHash: hash,
  /** the request's messages are parent's messages + its answer when messagePrefix > 0, then messagesTail */
  messagePrefix: count,
  messagesTailHash: hash,
  conversationHash: hash,
  toolsHash: hash.nullable(),
  answerHash: hash,
  finishReason: FinishReason,
  sampling: Sampling,
  usage: Usage,
  ledgerMisses: count,
  resumedAt: z.array(count),
  modelSha256: hash,
  adapterSha256: hash.nullable(),
  queueMs: z.number(),
  prefillMs: z.number(),
  decodeMs: z.number(),
});
export const ToolRan = event('tool.ran', {
  experimentId: id,
  threadId: id,
  callId: z.string(),
  name: z.string(),
  argumentsHash: hash,
  resultHash: hash,
  shownHash: hash,
  exitCode: z.number().int().nullable(),
  durationMs: z.number(),
  failed: z.boolean(),
});

export const JudgmentOpened = event('judgment.opened', {
  judgmentId: id,
  experimentId: id,
  cycle: count,
  stage: StageName,
  purpose: JudgmentPurpose,
  taskId: id,
  /** challenger (search) or the match's first */
  firstEpisodeId: id,
  /** incumbent (search) or the match's second */
  secondEpisodeId: id,
  orders: z.union([z.literal(1), z.literal(2)]),
  seed: z.number().int(),
  /** of a pair of rollouts: the comparison it belongs to */
  comparisonId: id.optional(),
});
export const PresentationRecorded = event('presentation.recorded', {
  presentationId: id,
  judgmentId: id,
  experimentId: id,
  shownAsA: z.enum(['first', 'second']),
  seed: z.number().int(),
  verdict: z.enum(['A', 'B', 'tie']),
  valid: z.boolean(),
  tries: count,
  contentHash: hash, // rationale, citations, what was cut
  promptSha256: hash,
  firstEvidenceHash: hash,
  secondEvidenceHash: hash,
});
export const JudgmentDecided = event('judgment.decided', {
  judgmentId: id,
  experimentId: id,
  result: PairResult,
  invalidPresentations: count,
});

export const MatchScheduled = event('match.scheduled', {
  experimentId: id,
  cycle: count,
  taskId: id,
  matchIndex: count,
  firstEpisodeId: id,
  secondEpisodeId: id,
  seed: z.number().int(),
});
export const RatingsComputed = event('ratings.computed', {
  experimentId: id,
  cycle: count,
  taskId: id,
  method: z.enum(['mm', 'newton']),
  /** by rank, best first */
  entries: z.array(
    z.object({
      episodeId: id,
      rank: count,
      score: z.number(),
      standardError: z.number().nullable(),
      wins: z.number(),
      matches: count,
    }),
  ),
});
export const SelectionMade = event('selection.made', {
  experimentId: id,
  cycle: count,
  taskId: id,
  provenWin: z.boolean(),
  /** the two fits would choose different runs */
  flagged: z.boolean(),
  flagJson: z.string(),
  entries: z.array(z.object({ episodeId: id, rank: count, decision: z.enum(['train', 'validate', 'drop']) })),
  /** ranked runs whose findings kept them out of the cut, with the rank they had */
  leftOut: z.array(z.object({ episodeId: id, rank: count, standing: z.enum(['waiting', 'upheld']) })).optional(),
});
export const TaskExcluded = event('task.excluded', {
  experimentId: id,
  cycle: count,
  taskId: id,
  stage: StageName,
  reason: z.string(),
});
export const Pruned = event('pruned', { experimentId: id, attemptIds: z.array(id), bytes: count });

export const DomainEvent = z.discriminatedUnion('type', [
  ExperimentCreated,
  ModelRegistered,
  GenerationRegistered,
  TaskRegistered,
  RunStarted,
  RunEnded,
  StageStarted,
  StageEnded,
  Notice,
  WorkflowAdded,
  ProposalRecorded,
  ChampionDecided,
  EpisodePlanned,
  AttemptStarted,
  AttemptEnded,
  ThreadStarted,
  ThreadEnded,
  CompletionRecorded,
  ToolRan,
  JudgmentOpened,
  PresentationRecorded,
  JudgmentDecided,
  MatchScheduled,
  RatingsComputed,
  SelectionMade,
  TaskExcluded,
  Pruned,
  WindowsRendered,
  TrainingStarted,
  TrainingStepped,
  TrainingValidated,
  TrainingCheckpointed,
  TrainingEnded,
  CheckpointChosen,
  AdapterExported,
  ParityMeasured,
  RolloutSetCreated,
  RolloutSetCompleted,
  ComparisonOpened,
  ComparisonCompleted,
  EpisodeChecked,
  FindingRecorded,
  FindingDecided,
  GateOpened,
  GateDecided,
]);
export type DomainEvent = z.infer<typeof DomainEvent>;
export type EventType = DomainEvent['type'];
export type EventOf<T extends EventType> = Extract<DomainEvent, { type: T }>;

/** An event as stored: `seq` orders all events of a data folder, `at` is milliseconds since 1970 (UTC). */
export interface StoredEvent {
  readonly seq: number;
  readonly at: number;
  readonly event: DomainEvent;
}
