import type Database from 'better-sqlite3';
import type { RunState, StageName } from '../../../common/domain/events.ts';
import { inserter, type Projections } from '../projection.ts';

export interface ExperimentRow {
  readonly experimentId: string;
  readonly name: string;
  readonly configJson: string;
  readonly configHash: string;
  readonly massVersion: string;
  readonly createdAt: number;
}
export interface GenerationRow {
  readonly generationId: string;
  readonly experimentId: string;
  readonly number: number;
  readonly modelId: string;
  readonly modelSha256: string;
  readonly parentGenerationId: string | null;
  readonly adapterSha256: string | null;
  /** model card; null for L0 */
  readonly cardHash: string | null;
}
export interface RunRow {
  readonly runId: string;
  readonly experimentId: string;
  readonly cycle: number;
  readonly stagesJson: string;
  readonly tasksJson: string | null;
  /** all cycles of a run over several; null: `cycle` alone */
  readonly cyclesJson: string | null;
  readonly enginePid: number;
  readonly state: RunState;
  readonly message: string;
  readonly errorJson: string | null;
  readonly startedAt: number;
  readonly endedAt: number | null;
}
export interface StageRow {
  readonly experimentId: string;
  readonly cycle: number;
  readonly stage: StageName;
  readonly runId: string;
  readonly state: RunState;
  readonly message: string;
  readonly startedAt: number;
  readonly endedAt: number | null;
}

const experimentColumns = ['experimentId', 'name', 'configJson', 'configHash', 'massVersion', 'createdAt'];
const generationColumns = [
  'generationId',
  'experimentId',
  'number',
  'modelId',
  'modelSha256',
  'parentGenerationId',
  'adapterSha256',
  'cardHash',
  'registeredAt',
];

/** Experiments, their generations, runs, stages and notices. */
export function experimentRepository(db: Database.Database) {
  const insertExperiment = inserter(db, 'experiments', experimentColumns);
  const insertGeneration = inserter(db, 'generations', generationColumns);
  const insertRun = db.prepare(
    `INSERT INTO runs (runId, experimentId, cycle, cyclesJson, stagesJson, tasksJson, enginePid, state, message, startedAt)
     VALUES (@runId, @experimentId, @cycle, @cyclesJson, @stagesJson, @tasksJson, @enginePid, 'running', '', @at)`,
  );
  const endRun = db.prepare(
    'UPDATE runs SET state = @state, message = @message, errorJson = @errorJson, endedAt = @at WHERE runId = @runId',
  );
  const startStage = db.prepare(
    `INSERT INTO stages (experimentId, cycle, stage, runId, state, message, startedAt, endedAt)
     VALUES (@experimentId, @cycle, @stage, @runId, 'running', '', @at, NULL)
     ON CONFLICT (experimentId, cycle, stage) DO UPDATE SET runId = @runId, state = 'running', message = '', endedAt = NULL`,
  );
  const endStage = db.prepare(
    `UPDATE stages SET state = @state, message = @message, endedAt = @at
     WHERE experimentId = @experimentId AND cycle = @cycle AND stage = @stage`,
  );
  const insertNotice = db.prepare(
    'INSERT INTO notices (seq, experimentId, level, code, message, at) VALUES (@seq, @experimentId, @level, @code, @message, @at)',
  );

  const projections = {
    'experiment.created': (event, { at }) => void insertExperiment.run({ ...event, createdAt: at }),
    'generation.registered': (event, { at }) =>
      void insertGeneration.run({ ...event, cardHash: event.cardHash ?? null, registeredAt: at }),
    'run.started': (event, { at }) =>
      void insertRun.run({
        ...event,
        cyclesJson: event.cycles === undefined ? null : JSON.stringify(event.cycles),
        stagesJson: JSON.stringify(event.stages),
        tasksJson: event.tasks && JSON.stringify(event.tasks),
        at,
      }),
    'run.ended': (event, { at }) => void endRun.run({ ...event, at }),
    'stage.started': (event, { at }) => void startStage.run({ ...event, at }),
    'stage.ended': (event, { at }) => void endStage.run({ ...event, at }),
    notice: (event, { seq, at }) => void insertNotice.run({ ...event, seq, at }),
  } satisfies Projections;

  const byName = db.prepare<[string], ExperimentRow>('SELECT * FROM experiments WHERE name = ?');
  const byId = db.prepare<[string], ExperimentRow>('SELECT * FROM experiments WHERE experimentId = ?');
  const all = db.prepare<[], ExperimentRow>('SELECT * FROM experiments ORDER BY createdAt, name');
  const generations = db.prepare<[string], GenerationRow>(
    'SELECT * FROM generations WHERE experimentId = ? ORDER BY number',
  );
  const runs = db.prepare<[string], RunRow>('SELECT * FROM runs WHERE experimentId = ? ORDER BY startedAt, rowid');
  const openRuns = db.prepare<[], RunRow>("SELECT * FROM runs WHERE state = 'running'");
  const stages = db.prepare<[string], StageRow>(
    'SELECT * FROM stages WHERE experimentId = ? ORDER BY cycle, startedAt',
  );
  const openStages = db.prepare<[string], StageRow>("SELECT * FROM stages WHERE state = 'running' AND runId = ?");

  return {
    projections,
    byName: (name: string) => byName.get(name),
    byId: (experimentId: string) => byId.get(experimentId),
    all: () => all.all(),
    generations: (experimentId: string) => generations.all(experimentId),
    runs: (experimentId: string) => runs.all(experimentId),
    openRuns: () => openRuns.all(),
    stages: (experimentId: string) => stages.all(experimentId),
    openStagesOf: (runId: string) => openStages.all(runId),
  };
}
