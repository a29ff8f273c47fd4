import type Database from 'better-sqlite3';
import { bit, inserter, type Projections, replacer } from '../projection.ts';
import type { CycleKey } from './tasks.ts';

export interface TrainingRow extends CycleKey {
  readonly trainingId: string;
  readonly parentGenerationId: string;
  readonly windowSetId: string;
  /** relative to the data folder */
  readonly folder: string;
  readonly orderHash: string;
  /** the step the newest start went on from */
  readonly fromStep: number;
  readonly steps: number;
  readonly startedAt: number;
  readonly state: 'running' | 'finished' | 'stopped' | 'diverged' | 'failed';
  /** the last one that was done when it ended */
  readonly step: number;
  readonly message: string;
  readonly endedAt: number | null;
}
export interface TrainingStepRow {
  readonly trainingId: string;
  readonly step: number;
  readonly loss: number;
  readonly learningRate: number;
  readonly gradNorm: number;
  readonly windowsJson: string;
  readonly tokens: number;
  readonly labelledTokens: number;
  readonly seconds: number;
  readonly peakBytes: number;
}
export interface ValidationRow {
  readonly trainingId: string;
  readonly step: number;
  readonly loss: number | null;
  readonly labelledTokens: number;
}
export interface CheckpointRow {
  readonly trainingId: string;
  readonly step: number;
  /** relative to the data folder */
  readonly folder: string;
  readonly bytes: number;
  readonly adapterSha256: string;
}
export interface CheckpointChoiceRow {
  readonly trainingId: string;
  readonly step: number;
  readonly loss: number | null;
  readonly chosenBy: 'lowest-validation-loss' | 'person';
  readonly note: string;
  readonly chosenAt: number;
}
export interface ExportedAdapterRow {
  readonly trainingId: string;
  readonly step: number;
  readonly adapterSha256: string;
  readonly bytes: number;
  readonly rank: number;
  readonly exportedAt: number;
}
export interface ParityRow {
  readonly trainingId: string;
  readonly step: number;
  readonly adapterSha256: string;
  readonly passed: 0 | 1;
  readonly reportHash: string;
  readonly measuredAt: number;
}
interface StepKey {
  readonly trainingId: string;
  readonly step: number;
}

const trainingColumns = [
  'trainingId',
  'experimentId',
  'cycle',
  'parentGenerationId',
  'windowSetId',
  'folder',
  'orderHash',
  'fromStep',
  'steps',
  'startedAt',
  'state',
  'step',
  'message',
  'endedAt',
];
const stepColumns = [
  'trainingId',
  'step',
  'loss',
  'learningRate',
  'gradNorm',
  'windowsJson',
  'tokens',
  'labelledTokens',
  'seconds',
  'peakBytes',
];

/** Trainings with their curves and checkpoints, the choice of one and what became of it. */
export function trainingRepository(db: Database.Database) {
  const projections = projectionsOf(db);
  const ofTraining = <R>(table: string) =>
    db.prepare<[string], R>(`SELECT * FROM ${table} WHERE trainingId = ? ORDER BY step`);
  const atStep = <R>(table: string) =>
    db.prepare<StepKey, R>(`SELECT * FROM ${table} WHERE trainingId = @trainingId AND step = @step`);
  const newest = db.prepare<CycleKey, TrainingRow>(
    'SELECT * FROM trainings WHERE experimentId = @experimentId AND cycle = @cycle ORDER BY startedAt DESC, rowid DESC LIMIT 1',
  );
  const byId = db.prepare<[string], TrainingRow>('SELECT * FROM trainings WHERE trainingId = ?');
  const running = db.prepare<[], TrainingRow>("SELECT * FROM trainings WHERE state = 'running' ORDER BY startedAt");
  const steps = ofTraining<TrainingStepRow>('training_steps');
  const validations = ofTraining<ValidationRow>('training_validations');
  const checkpoints = ofTraining<CheckpointRow>('checkpoints');
  const choice = ofTraining<CheckpointChoiceRow>('checkpoint_choices');
  const exported = atStep<ExportedAdapterRow>('exported_adapters');
  const parity = atStep<ParityRow>('parities');
  return {
    projections,
    /** The newest training of a cycle. */
    ofCycle: (key: CycleKey) => newest.get(key),
    byId: (trainingId: string) => byId.get(trainingId),
    /** Those that a live engine trains, or a dead one left. */
    running: () => running.all(),
    steps: (trainingId: string) => steps.all(trainingId),
    validations: (trainingId: string) => validations.all(trainingId),
    checkpoints: (trainingId: string) => checkpoints.all(trainingId),
    choice: (trainingId: string) => choice.get(trainingId),
    exported: (key: StepKey) => exported.get(key),
    parity: (key: StepKey) => parity.get(key),
  };
}

function projectionsOf(db: Database.Database) {
  const start = inserter(db, 'trainings', trainingColumns);
  const startAgain = db.prepare(
    `UPDATE trainings SET fromStep = @fromStep, orderHash = @orderHash, state = 'running', step = @fromStep,
     message = '', endedAt = NULL WHERE trainingId = @trainingId`,
  );
  const undone = ['training_steps', 'training_validations'].map((table) =>
    db.prepare(`DELETE FROM ${table} WHERE trainingId = @trainingId AND step > @fromStep`),
  );
  const end = db.prepare(
    'UPDATE trainings SET state = @state, step = @step, message = @message, endedAt = @at WHERE trainingId = @trainingId',
  );
  const putStep = replacer(db, 'training_steps', stepColumns);
  const putValidation = replacer(db, 'training_validations', ['trainingId', 'step', 'loss', 'labelledTokens']);
  const putCheckpoint = replacer(db, 'checkpoints', ['trainingId', 'step', 'folder', 'bytes', 'adapterSha256']);
  const putChoice = replacer(db, 'checkpoint_choices', ['trainingId', 'step', 'loss', 'chosenBy', 'note', 'chosenAt']);
  const putExported = replacer(db, 'exported_adapters', [
    ...['trainingId', 'step', 'adapterSha256', 'bytes', 'rank', 'exportedAt'],
  ]);
  const putParity = replacer(db, 'parities', [
    ...['trainingId', 'step', 'adapterSha256', 'passed', 'reportHash', 'measuredAt'],
  ]);
  return {
    'training.started': (event, { at }) => {
      // What the dead one did after its newest checkpoint is done again.
      for (const undo of undone) undo.run(event);
      if (startAgain.run({ ...event }).changes > 0) return;
      start.run({ ...event, startedAt: at, state: 'running', step: event.fromStep, message: '', endedAt: null });
    },
    'training.stepped': ({ windows, ...event }) => void putStep.run({ ...event, windowsJson: JSON.stringify(windows) }),
    'training.validated': (event) => void putValidation.run({ ...event }),
    'training.checkpointed': (event) => void putCheckpoint.run({ ...event }),
    'training.ended': (event, { at }) => void end.run({ ...event, at }),
    'checkpoint.chosen': ({ by, ...event }, { at }) => void putChoice.run({ ...event, chosenBy: by, chosenAt: at }),
    'adapter.exported': (event, { at }) => void putExported.run({ ...event, exportedAt: at }),
    'parity.measured': ({ passed, ...event }, { at }) =>
      void putParity.run({ ...event, passed: bit(passed), measuredAt: at }),
  } satisfies Projections;
}
