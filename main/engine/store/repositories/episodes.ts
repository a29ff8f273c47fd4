import type Database from 'better-sqlite3';
import type { AttemptOutcome, StageName } from '../../../common/domain/events.ts';
import { inserter, type Projections } from '../projection.ts';
import type { CycleKey, TaskKey } from './tasks.ts';

export interface EpisodeRow {
  readonly episodeId: string;
  readonly experimentId: string;
  readonly cycle: number;
  readonly stage: StageName;
  readonly taskId: string;
  readonly workflowVersion: number | null;
  readonly replicate: number;
  readonly seed: number;
  /** of a rollout: the set it belongs to */
  readonly setId: string | null;
}
export interface AttemptRow {
  readonly attemptId: string;
  readonly episodeId: string;
  readonly experimentId: string;
  readonly number: number;
  readonly generationId: string;
  readonly workspace: string;
  readonly sandboxMode: 'bubblewrap' | 'host';
  readonly promptHash: string;
  readonly inputsHash: string;
  readonly runtime: string;
  readonly runtimePromptsJson: string;
  /** null while it runs */
  readonly outcome: AttemptOutcome | null;
  readonly haltReason: string | null;
  readonly ending: string;
  readonly turns: number;
  readonly delegations: number;
  readonly toolCalls: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  readonly bodyHash: string | null;
  readonly filesHash: string | null;
  readonly workspaceBytes: number;
  readonly pruned: 0 | 1;
  readonly startedAt: number;
  readonly endedAt: number | null;
}
/** An episode with the attempt that settled it (completed or halted), if any. */
export interface SettledEpisode extends EpisodeRow {
  readonly attempt: AttemptRow | null;
}

const episodeColumns = [
  'episodeId',
  'experimentId',
  'cycle',
  'stage',
  'taskId',
  'workflowVersion',
  'replicate',
  'seed',
  'setId',
  'plannedAt',
];
const attemptColumns = [
  'attemptId',
  'episodeId',
  'experimentId',
  'number',
  'generationId',
  'workspace',
  'sandboxMode',
  'promptHash',
  'inputsHash',
  'runtime',
  'runtimePromptsJson',
  'startedAt',
];

/** Episodes by key, and every attempt at them. */
export function episodeRepository(db: Database.Database) {
  const insertEpisode = inserter(db, 'episodes', episodeColumns);
  const insertAttempt = inserter(db, 'attempts', attemptColumns);
  const endAttempt = db.prepare(
    `UPDATE attempts SET outcome = @outcome, haltReason = @haltReason, ending = @ending, turns = @turns, delegations = @delegations,
       toolCalls = @toolCalls, promptTokens = @promptTokens, generatedTokens = @generatedTokens, bodyHash = @bodyHash,
       filesHash = @filesHash, workspaceBytes = @workspaceBytes, endedAt = @at
     WHERE attemptId = @attemptId`,
  );
  const prune = db.prepare('UPDATE attempts SET pruned = 1, workspaceBytes = 0 WHERE attemptId = ?');
  const projections = {
    'episode.planned': (event, { at }) =>
      void insertEpisode.run({ ...event, setId: event.setId ?? null, plannedAt: at }),
    'attempt.started': (event, { at }) => void insertAttempt.run({ ...event, startedAt: at }),
    'attempt.ended': (event, { at }) => void endAttempt.run({ ...event, at }),
    pruned: (event) => {
      for (const attemptId of event.attemptIds) prune.run(attemptId);
    },
  } satisfies Projections;

  const ofStage = db.prepare<CycleKey & { stage: string; taskId: string | null }, EpisodeRow>(
    `SELECT * FROM episodes WHERE experimentId = @experimentId AND cycle = @cycle AND stage = @stage
       AND (@taskId IS NULL OR taskId = @taskId) ORDER BY taskId, workflowVersion, replicate`,
  );
  const ofSet = db.prepare<[string], EpisodeRow>('SELECT * FROM episodes WHERE setId = ? ORDER BY taskId, replicate');
  const byId = db.prepare<[string], EpisodeRow>('SELECT * FROM episodes WHERE episodeId = ?');
  const attempts = db.prepare<[string], AttemptRow>('SELECT * FROM attempts WHERE episodeId = ? ORDER BY number');
  const settled = db.prepare<[string], AttemptRow>(
    "SELECT * FROM attempts WHERE episodeId = ? AND outcome IN ('completed', 'halted') ORDER BY number LIMIT 1",
  );
  const attemptById = db.prepare<[string], AttemptRow>('SELECT * FROM attempts WHERE attemptId = ?');
  const openAttempts = db.prepare<[], AttemptRow>('SELECT * FROM attempts WHERE outcome IS NULL');
  const ofExperiment = db.prepare<[string], AttemptRow>(
    'SELECT * FROM attempts WHERE experimentId = ? ORDER BY startedAt, attemptId',
  );

  const workspaceBytes = db.prepare<[string], { bytes: number }>(
    'SELECT coalesce(sum(workspaceBytes), 0) AS bytes FROM attempts WHERE experimentId = ?',
  );

  const withSettled = (row: EpisodeRow): SettledEpisode => ({ ...row, attempt: settled.get(row.episodeId) ?? null });
  return {
    projections,
    byId: (episodeId: string) => byId.get(episodeId),
    ofTask: (key: TaskKey & { stage: StageName }): SettledEpisode[] => ofStage.all(key).map(withSettled),
    ofStage: (key: CycleKey & { stage: StageName }): SettledEpisode[] =>
      ofStage.all({ ...key, taskId: null }).map(withSettled),
    ofSet: (setId: string): SettledEpisode[] => ofSet.all(setId).map(withSettled),
    attempts: (episodeId: string) => attempts.all(episodeId),
    settledAttempt: (episodeId: string) => settled.get(episodeId),
    attemptById: (attemptId: string) => attemptById.get(attemptId),
    openAttempts: () => openAttempts.all(),
    /** as recorded when its attempts ended, less what was pruned */
    workspaceBytes: (experimentId: string): number => workspaceBytes.get(experimentId)?.bytes ?? 0,
    attemptsOfExperiment: (experimentId: string) => ofExperiment.all(experimentId),
  };
}
