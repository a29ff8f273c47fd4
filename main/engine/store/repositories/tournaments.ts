import type Database from 'better-sqlite3';
import { bit, inserter, type Projections } from '../projection.ts';
import type { CycleKey, TaskKey } from './tasks.ts';

export interface MatchRow {
  readonly taskId: string;
  readonly matchIndex: number;
  readonly firstEpisodeId: string;
  readonly secondEpisodeId: string;
  readonly seed: number;
}
export interface RatingRow {
  readonly taskId: string;
  readonly method: 'mm' | 'newton';
  readonly episodeId: string;
  readonly rank: number;
  readonly score: number;
  readonly standardError: number | null;
  readonly wins: number;
  readonly matches: number;
}
export interface SelectionRow {
  readonly taskId: string;
  readonly provenWin: 0 | 1;
  readonly flagged: 0 | 1;
  readonly flagJson: string;
  /** ranked runs that findings kept out: { episodeId, rank, standing } */
  readonly leftOutJson: string;
}
export interface SelectionEntryRow {
  readonly taskId: string;
  readonly episodeId: string;
  readonly rank: number;
  readonly decision: 'train' | 'validate' | 'drop';
}

const matchColumns = ['experimentId', 'cycle', 'taskId', 'matchIndex', 'firstEpisodeId', 'secondEpisodeId', 'seed'];
const ratingColumns = [
  'experimentId',
  'cycle',
  'taskId',
  'method',
  'episodeId',
  'rank',
  'score',
  'standardError',
  'wins',
  'matches',
];

/** Match schedules, ratings and the selection that follows from them. */
export function tournamentRepository(db: Database.Database) {
  const insertMatch = inserter(db, 'matches', matchColumns);
  const insertRating = inserter(db, 'ratings', ratingColumns);
  const clearRatings = db.prepare(
    'DELETE FROM ratings WHERE experimentId = @experimentId AND cycle = @cycle AND taskId = @taskId AND method = @method',
  );
  const insertSelection = inserter(db, 'selections', [
    'experimentId',
    'cycle',
    'taskId',
    'provenWin',
    'flagged',
    'flagJson',
    'leftOutJson',
    'selectedAt',
  ]);
  const insertEntry = inserter(db, 'selection_entries', [
    'experimentId',
    'cycle',
    'taskId',
    'episodeId',
    'rank',
    'decision',
  ]);
  const projections = {
    'match.scheduled': (event) => void insertMatch.run(event),
    'ratings.computed': (event) => {
      const { experimentId, cycle, taskId, method } = event;
      clearRatings.run({ experimentId, cycle, taskId, method });
      for (const entry of event.entries) insertRating.run({ experimentId, cycle, taskId, method, ...entry });
    },
    'selection.made': (event, { at }) => {
      const { experimentId, cycle, taskId, flagJson } = event;
      insertSelection.run({
        experimentId,
        cycle,
        taskId,
        provenWin: bit(event.provenWin),
        flagged: bit(event.flagged),
        flagJson,
        leftOutJson: JSON.stringify(event.leftOut ?? []),
        selectedAt: at,
      });
      for (const entry of event.entries) insertEntry.run({ experimentId, cycle, taskId, ...entry });
    },
  } satisfies Projections;
  const matches = db.prepare<TaskKey, MatchRow>(
    'SELECT * FROM matches WHERE experimentId = @experimentId AND cycle = @cycle AND taskId = @taskId ORDER BY matchIndex',
  );
  const ratings = db.prepare<TaskKey, RatingRow>(
    'SELECT * FROM ratings WHERE experimentId = @experimentId AND cycle = @cycle AND taskId = @taskId ORDER BY method, rank',
  );
  const selections = db.prepare<CycleKey, SelectionRow>(
    'SELECT * FROM selections WHERE experimentId = @experimentId AND cycle = @cycle',
  );
  const entries = db.prepare<CycleKey, SelectionEntryRow>(
    'SELECT * FROM selection_entries WHERE experimentId = @experimentId AND cycle = @cycle ORDER BY taskId, rank',
  );
  return {
    projections,
    matches: (key: TaskKey) => matches.all(key),
    ratings: (key: TaskKey) => ratings.all(key),
    selections: (key: CycleKey) => selections.all(key),
    selection: (key: TaskKey) => selections.all(key).find((row) => row.taskId === key.taskId),
    entries: (key: CycleKey) => entries.all(key),
  };
}
