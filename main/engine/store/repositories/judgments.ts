import type Database from 'better-sqlite3';
import type { JudgmentPurpose, PairResult, StageName } from '../../../common/domain/events.ts';
import { bit, inserter, type Projections } from '../projection.ts';
import type { CycleKey, TaskKey } from './tasks.ts';

export interface JudgmentRow {
  readonly judgmentId: string;
  readonly experimentId: string;
  readonly cycle: number;
  readonly stage: StageName;
  readonly purpose: JudgmentPurpose;
  readonly taskId: string;
  readonly firstEpisodeId: string;
  readonly secondEpisodeId: string;
  readonly orders: 1 | 2;
  readonly seed: number;
  /** of a pair of rollouts: the comparison it belongs to */
  readonly comparisonId: string | null;
  /** null until decided */
  readonly result: PairResult | null;
  readonly invalidPresentations: number;
  readonly openedAt: number;
  readonly decidedAt: number | null;
}
export interface PresentationRow {
  readonly presentationId: string;
  readonly judgmentId: string;
  readonly shownAsA: 'first' | 'second';
  readonly seed: number;
  readonly verdict: 'A' | 'B' | 'tie';
  readonly valid: 0 | 1;
  readonly tries: number;
  readonly contentHash: string;
  readonly firstEvidenceHash: string;
  readonly secondEvidenceHash: string;
}

const judgmentColumns = [
  'judgmentId',
  'experimentId',
  'cycle',
  'stage',
  'purpose',
  'taskId',
  'firstEpisodeId',
  'secondEpisodeId',
  'orders',
  'seed',
  'comparisonId',
  'openedAt',
];
const presentationColumns = [
  'presentationId',
  'judgmentId',
  'experimentId',
  'shownAsA',
  'seed',
  'verdict',
  'valid',
  'tries',
  'contentHash',
  'promptSha256',
  'firstEvidenceHash',
  'secondEvidenceHash',
  'recordedAt',
];

/** Pairwise judgments and every presentation they rest on. */
export function judgmentRepository(db: Database.Database) {
  const insertJudgment = inserter(db, 'judgments', judgmentColumns);
  const insertPresentation = inserter(db, 'presentations', presentationColumns);
  const decide = db.prepare(
    'UPDATE judgments SET result = @result, invalidPresentations = @invalidPresentations, decidedAt = @at WHERE judgmentId = @judgmentId',
  );
  const projections = {
    'judgment.opened': (event, { at }) =>
      void insertJudgment.run({ ...event, comparisonId: event.comparisonId ?? null, openedAt: at }),
    'presentation.recorded': (event, { at }) =>
      void insertPresentation.run({ ...event, valid: bit(event.valid), recordedAt: at }),
    'judgment.decided': (event, { at }) => void decide.run({ ...event, at }),
  } satisfies Projections;
  const ofStage = db.prepare<CycleKey & { stage: string; taskId: string | null }, JudgmentRow>(
    `SELECT * FROM judgments WHERE experimentId = @experimentId AND cycle = @cycle AND stage = @stage
       AND (@taskId IS NULL OR taskId = @taskId) ORDER BY decidedAt IS NULL, decidedAt, rowid`,
  );
  const ofComparison = db.prepare<[string], JudgmentRow>(
    'SELECT * FROM judgments WHERE comparisonId = ? ORDER BY decidedAt IS NULL, decidedAt, rowid',
  );
  const presentations = db.prepare<[string], PresentationRow>(
    'SELECT * FROM presentations WHERE judgmentId = ? ORDER BY recordedAt, rowid',
  );
  const byId = db.prepare<[string], JudgmentRow>('SELECT * FROM judgments WHERE judgmentId = ?');
  return {
    projections,
    byId: (judgmentId: string) => byId.get(judgmentId),
    /** Decided ones first, in the order they were decided. */
    ofTask: (key: TaskKey & { stage: StageName }) => ofStage.all(key),
    ofStage: (key: CycleKey & { stage: StageName }) => ofStage.all({ ...key, taskId: null }),
    ofComparison: (comparisonId: string) => ofComparison.all(comparisonId),
    presentations: (judgmentId: string) => presentations.all(judgmentId),
  };
}
