import type Database from 'better-sqlite3';
import type { Domain, Split } from '../../../common/domain/task.ts';
import { inserter, type Projections } from '../projection.ts';

export interface TaskRow {
  readonly experimentId: string;
  readonly taskId: string;
  readonly number: number;
  readonly title: string;
  readonly domain: Domain;
  readonly split: Split;
  readonly contentHash: string;
  readonly manifestHash: string;
  readonly promptHash: string;
  readonly folder: string;
}
export interface ExclusionRow {
  readonly taskId: string;
  readonly stage: string;
  readonly reason: string;
}
export interface CycleKey {
  readonly experimentId: string;
  readonly cycle: number;
}
export interface TaskKey extends CycleKey {
  readonly taskId: string;
}

const columns = [
  'experimentId',
  'taskId',
  'number',
  'title',
  'domain',
  'split',
  'contentHash',
  'manifestHash',
  'promptHash',
  'folder',
];

/** Tasks as frozen with an experiment, and why some of them supply no data. */
export function taskRepository(db: Database.Database) {
  const insert = inserter(db, 'tasks', columns);
  const exclude = db.prepare(
    `INSERT INTO exclusions (experimentId, cycle, taskId, stage, reason, at) VALUES (@experimentId, @cycle, @taskId, @stage, @reason, @at)
     ON CONFLICT (experimentId, cycle, taskId, stage) DO UPDATE SET reason = @reason, at = @at`,
  );
  const projections = {
    'task.registered': (event) => void insert.run(event),
    'task.excluded': (event, { at }) => void exclude.run({ ...event, at }),
  } satisfies Projections;
  const of = db.prepare<[string], TaskRow>('SELECT * FROM tasks WHERE experimentId = ? ORDER BY number');
  const exclusions = db.prepare<CycleKey, ExclusionRow>(
    'SELECT taskId, stage, reason FROM exclusions WHERE experimentId = @experimentId AND cycle = @cycle',
  );
  return {
    projections,
    of: (experimentId: string) => of.all(experimentId),
    exclusions: (key: CycleKey) => exclusions.all(key),
  };
}
