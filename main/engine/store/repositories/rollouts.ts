import type Database from 'better-sqlite3';
import { inserter, type Projections } from '../projection.ts';

/** Bare-prompt runs of one generation; its content never changes once it is created. */
export interface RolloutSetRow {
  readonly setId: string;
  readonly experimentId: string;
  readonly generationId: string;
  /** its number: 1 is L1 */
  readonly generation: number;
  readonly name: string;
  readonly taskIdsJson: string;
  /** runs of each task */
  readonly count: number;
  readonly seedBase: number;
  readonly createdAt: number;
  /** null until every run is settled */
  readonly membersHash: string | null;
  readonly runs: number | null;
  readonly completed: number | null;
  readonly completedAt: number | null;
}
export interface ComparisonRow {
  readonly comparisonId: string;
  readonly experimentId: string;
  /** of both sets */
  readonly setName: string;
  readonly firstSetId: string;
  readonly firstGeneration: number;
  readonly secondSetId: string;
  readonly secondGeneration: number;
  readonly evaluatorGenerationId: string;
  readonly evaluatorGeneration: number;
  readonly orders: 2;
  readonly pairs: number;
  readonly openedAt: number;
  /** null until every pair is judged */
  readonly resultHash: string | null;
  readonly completedAt: number | null;
}

const setColumns = [
  'setId',
  'experimentId',
  'generationId',
  'generation',
  'name',
  'taskIdsJson',
  'count',
  'seedBase',
  'createdAt',
];
const comparisonColumns = [
  'comparisonId',
  'experimentId',
  'setName',
  'firstSetId',
  'firstGeneration',
  'secondSetId',
  'secondGeneration',
  'evaluatorGenerationId',
  'evaluatorGeneration',
  'orders',
  'pairs',
  'openedAt',
];

/** Sets of rollouts and comparisons between two of them. A completed row is never written again. */
export function rolloutRepository(db: Database.Database) {
  const insertSet = inserter(db, 'rollout_sets', setColumns);
  const insertComparison = inserter(db, 'comparisons', comparisonColumns);
  const completeSet = db.prepare(
    `UPDATE rollout_sets SET membersHash = @membersHash, runs = @runs, completed = @completed, completedAt = @at
     WHERE setId = @setId AND membersHash IS NULL`,
  );
  const completeComparison = db.prepare(
    `UPDATE comparisons SET resultHash = @resultHash, completedAt = @at
     WHERE comparisonId = @comparisonId AND resultHash IS NULL`,
  );
  const projections = {
    'rollout-set.created': ({ taskIds, ...event }, { at }) =>
      void insertSet.run({ ...event, taskIdsJson: JSON.stringify(taskIds), createdAt: at }),
    'rollout-set.completed': (event, { at }) => void completeSet.run({ ...event, at }),
    'comparison.opened': (event, { at }) => void insertComparison.run({ ...event, openedAt: at }),
    'comparison.completed': (event, { at }) => void completeComparison.run({ ...event, at }),
  } satisfies Projections;

  const sets = db.prepare<[string], RolloutSetRow>(
    'SELECT * FROM rollout_sets WHERE experimentId = ? ORDER BY createdAt, rowid',
  );
  const setById = db.prepare<[string], RolloutSetRow>('SELECT * FROM rollout_sets WHERE setId = ?');
  const comparisons = db.prepare<[string], ComparisonRow>(
    'SELECT * FROM comparisons WHERE experimentId = ? ORDER BY openedAt, rowid',
  );
  const comparisonById = db.prepare<[string], ComparisonRow>('SELECT * FROM comparisons WHERE comparisonId = ?');
  return {
    projections,
    sets: (experimentId: string) => sets.all(experimentId),
    setById: (setId: string) => setById.get(setId),
    comparisons: (experimentId: string) => comparisons.all(experimentId),
    comparisonById: (comparisonId: string) => comparisonById.get(comparisonId),
  };
}
