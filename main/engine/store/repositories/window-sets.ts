import type Database from 'better-sqlite3';
import { inserter, type Projections } from '../projection.ts';
import type { CycleKey } from './tasks.ts';

export interface WindowSetRow extends CycleKey {
  readonly windowSetId: string;
  readonly folder: string;
  readonly manifestHash: string;
  readonly modelSha256: string;
  readonly windows: number;
  readonly tokens: number;
  readonly labelledTokens: number;
  readonly renderedAt: number;
}

const columns = [
  'windowSetId',
  'experimentId',
  'cycle',
  'folder',
  'manifestHash',
  'modelSha256',
  'windows',
  'tokens',
  'labelledTokens',
  'renderedAt',
];

/** What the trainer reads: sets of windows, one current one for each cycle. */
export function windowSetRepository(db: Database.Database) {
  const insert = inserter(db, 'window_sets', columns);
  const forget = db.prepare('DELETE FROM window_sets WHERE windowSetId = ?');
  const projections = {
    'windows.rendered': (event, { at }) => {
      forget.run(event.windowSetId);
      insert.run({ ...event, renderedAt: at });
    },
  } satisfies Projections;
  const newest = db.prepare<CycleKey, WindowSetRow>(
    'SELECT * FROM window_sets WHERE experimentId = @experimentId AND cycle = @cycle ORDER BY renderedAt DESC, rowid DESC LIMIT 1',
  );
  return {
    projections,
    /** The newest set of a cycle. */
    ofCycle: (key: CycleKey) => newest.get(key),
  };
}
