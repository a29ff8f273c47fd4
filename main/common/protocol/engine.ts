import { z } from 'zod';
import { DomainEvent, RunState, Split, StageName } from '../domain/events.ts';
import { MemoryPlan } from '../domain/memory-plan.ts';
import { Deliverable, Domain } from '../domain/task.ts';
import { evaluationMethods } from './evaluation.ts';
import { exportMethods } from './export.ts';
import { FindingCounts, GateSummary, integrityMethods } from './integrity.ts';
import { TrainingProgress } from './training.ts';
import { windowMethods } from './windows.ts';

/**
 * What clients (CLI, browser, desktop) may ask of the engine. Parameters are parsed by the engine, results by the
 * client; `engineMethods` is the only place where a method exists.
 */
const method = <P extends z.ZodType, R extends z.ZodType>(params: P, result: R) => ({ params, result });
const nothing = z.object({});
const name = z.string().min(1).max(100);
/** Of something new: it is typed in a shell and names files of reports. */
const newName = z
  .string()
  .regex(
    /^[\p{L}\p{N}][\p{L}\p{N} ._-]{0,99}$/u,
    'use letters, digits, spaces, ".", "_" and "-", a letter or digit first',
  );

export const EngineInfo = z.object({
  pid: z.number().int(),
  version: z.string(),
  dataFolder: z.string(),
  startedAt: z.number(),
  lastSeq: z.number().int(),
  lease: z.string().nullable().describe('who holds the device: "serve <model>", or null'),
  activeRuns: z.array(z.object({ experiment: z.string(), runId: z.string() })),
});
export type EngineInfo = z.infer<typeof EngineInfo>;

export const ModelSummary = z.object({
  id: z.string(),
  title: z.string(),
  state: z.enum(['ready', 'missing', 'fetchable', 'changed']),
  bytes: z.number(),
  path: z.string().nullable(),
  sha256: z.string().nullable(),
  architecture: z.string().nullable(),
  source: z.string(),
});
export type ModelSummary = z.infer<typeof ModelSummary>;

export const TaskSummary = z.object({
  id: z.string(),
  number: z.number().int(),
  title: z.string(),
  domain: Domain,
  deliverables: z.array(Deliverable),
  folder: z.string(),
});
export const TaskDetail = TaskSummary.extend({ prompt: z.string(), workflow: z.string(), contentHash: z.string() });

/** Units of work: an episode, a judgment, a proposal, a selection. */
export const StageProgress = z.object({
  stage: StageName,
  state: z.union([RunState, z.literal('not yet run')]),
  done: z.number().int(),
  planned: z.number().int().describe('an estimate while the search still decides'),
  message: z.string(),
});
export type StageProgress = z.infer<typeof StageProgress>;

export const TaskProgress = z.object({
  taskId: z.string(),
  split: Split,
  versions: z.array(
    z.object({ version: z.number().int(), author: z.string(), status: z.string(), verdict: z.string() }),
  ),
  champion: z.number().int().nullable(),
  provenWin: z.boolean().nullable(),
  collected: z.number().int(),
  collectPlanned: z.number().int(),
  matches: z.number().int(),
  matchesPlanned: z.number().int(),
  ratings: z.array(
    z.object({
      run: z.number().int().describe('replicate, 1-based'),
      rank: z.number().int(),
      score: z.number(),
      standardError: z.number().nullable(),
      decision: z.enum(['train', 'validate', 'drop']).nullable(),
      findings: FindingCounts,
      standing: z.enum(['free', 'waiting', 'upheld']).describe('not free: left out of the selection'),
    }),
  ),
  flagged: z.boolean(),
  excluded: z.string().nullable(),
});
export type TaskProgress = z.infer<typeof TaskProgress>;

export const ExperimentStatus = z.object({
  name,
  cycle: z.number().int(),
  state: z.union([RunState, z.literal('new')]),
  message: z.string(),
  configHash: z.string(),
  model: z.string(),
  sandbox: z.string(),
  notices: z.array(z.string()),
  gates: z.array(GateSummary).describe('open ones, of every cycle'),
  findings: FindingCounts.describe('of the whole experiment'),
  stages: z.array(StageProgress),
  training: TrainingProgress.nullable().describe('the newest of the cycle'),
  lease: z.string().nullable().describe('who holds the device, whichever experiment it is for'),
  tasks: z.array(TaskProgress),
  tokens: z.object({
    evaluatedPrompt: z.number(),
    cachedPrompt: z.number(),
    generated: z.number(),
    ledgerMisses: z.number(),
  }),
  seconds: z.number().describe('wall time of all runs'),
  etaSeconds: z.number().nullable(),
  bytesOnDisk: z.number(),
  failures: z.array(z.string()).describe('what ended badly, newest first'),
});
export type ExperimentStatus = z.infer<typeof ExperimentStatus>;

export const PlanEstimate = z.object({
  assumptions: z.array(z.string()),
  rows: z.array(
    z.object({
      cycle: z.number().int(),
      stage: StageName,
      episodes: z.number(),
      judgments: z.number(),
      proposals: z.number(),
      promptTokens: z.number(),
      generatedTokens: z.number(),
      hours: z.number(),
      diskGB: z.number(),
    }),
  ),
  measured: z.boolean().describe('speed measured on this machine, not assumed'),
});
export type PlanEstimate = z.infer<typeof PlanEstimate>;

export const DoctorRow = z.object({
  what: z.string(),
  state: z.enum(['ok', 'warning', 'missing']),
  detail: z.string(),
  remedy: z.string().nullable(),
});
export type DoctorRow = z.infer<typeof DoctorRow>;

const EventRecord = z.object({ seq: z.number().int(), at: z.number(), event: DomainEvent });

export const engineMethods = {
  'engine.info': method(nothing, EngineInfo),
  /** `preview` says what each kind of stop would lose, and stops nothing */
  'engine.stop': method(
    z.object({
      mode: z.enum(['preview', 'after', 'now']),
      experiment: name.optional(),
      shutdown: z.boolean().default(false),
    }),
    z.object({ inFlight: z.array(z.string()), lostIfNow: z.string(), stopped: z.boolean() }),
  ),
  'doctor.run': method(z.object({ repair: z.boolean().default(false) }), z.array(DoctorRow)),
  'models.list': method(nothing, z.array(ModelSummary)),
  'models.add': method(z.object({ path: z.string(), id: z.string().optional() }), ModelSummary),
  /** `token`: for this download only; the engine keeps and logs none */
  'models.fetch': method(z.object({ id: z.string(), token: z.string().min(1).optional() }), ModelSummary),
  'models.plan': method(
    z.object({
      id: z.string(),
      contextSize: z.number().int().optional(),
      sequences: z.number().int().optional(),
      kvType: z.enum(['f16', 'q8_0']).optional(),
    }),
    MemoryPlan,
  ),
  'tasks.list': method(z.object({ library: z.string().default('builtin') }), z.array(TaskSummary)),
  'tasks.show': method(z.object({ library: z.string().default('builtin'), id: z.string() }), TaskDetail),
  /** creates the experiment, or finds the one with the same frozen configuration; a different one is a `conflict` that lists the differences */
  'experiment.create': method(
    z.object({ name: newName, config: z.unknown() }),
    z.object({ experimentId: z.string(), created: z.boolean() }),
  ),
  'experiment.list': method(
    nothing,
    z.array(z.object({ name, state: z.string(), createdAt: z.number(), model: z.string() })),
  ),
  /** of one cycle: by default the running one, else the latest */
  'experiment.status': method(z.object({ name, cycle: z.number().int().min(1).optional() }), ExperimentStatus),
  'experiment.plan': method(
    z.object({ name, cycles: z.array(z.number().int().min(1)).min(1).optional() }),
    PlanEstimate,
  ),
  'experiment.prune': method(
    z.object({ name, dryRun: z.boolean().default(false) }),
    z.object({ attempts: z.number().int(), bytes: z.number(), kept: z.number().int() }),
  ),
  ...evaluationMethods,
  ...exportMethods,
  ...integrityMethods,
  ...windowMethods,
  /**
   * starts a run in the background, by default of cycle 1; every stage of a cycle runs before the next cycle begins. A
   * second run of the same experiment is a `conflict`
   */
  'run.start': method(
    z.object({
      name,
      stages: z.array(StageName).min(1),
      tasks: z.array(z.string()).optional(),
      cycles: z.array(z.number().int().min(1)).min(1).optional(),
    }),
    z.object({ runId: z.string() }),
  ),
  /** resolves when the run has ended */
  'run.wait': method(
    z.object({ runId: z.string() }),
    z.object({ state: RunState, message: z.string(), error: z.unknown() }),
  ),
  'events.since': method(
    z.object({
      after: z.number().int(),
      limit: z.number().int().min(1).max(1000).default(200),
      experiment: name.optional(),
    }),
    z.array(EventRecord),
  ),
  /** starts `events` pushes on this connection */
  'events.subscribe': method(z.object({ experiment: name.optional() }), z.object({ lastSeq: z.number().int() })),
} as const;

export type EngineMethods = typeof engineMethods;
export type MethodName = keyof EngineMethods;
export type ParamsOf<M extends MethodName> = z.infer<EngineMethods[M]['params']>;
export type ParamsInputOf<M extends MethodName> = z.input<EngineMethods[M]['params']>;
export type ResultOf<M extends MethodName> = z.infer<EngineMethods[M]['result']>;

export const Progress = z.object({
  label: z.string(),
  done: z.number(),
  total: z.number().nullable(),
  unit: z.enum(['bytes', 'units', 'steps']),
  etaSeconds: z.number().nullable(),
});
export type Progress = z.infer<typeof Progress>;
