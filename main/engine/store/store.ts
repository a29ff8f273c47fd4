import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { MassError } from '../../common/base/errors.ts';
import { DomainEvent, type EventType, type StoredEvent } from '../../common/domain/events.ts';
import { diskError, isDiskError } from '../../node/disk-error.ts';
import { resourcePath } from '../../node/project-root.ts';
import { Artifacts } from './artifacts.ts';
import { migrate } from './migrate.ts';
import { withOwedEnds } from './owed-ends.ts';
import type { EventContext, Projections } from './projection.ts';
import { episodeRepository } from './repositories/episodes.ts';
import { experimentRepository } from './repositories/experiments.ts';
import { integrityRepository } from './repositories/integrity.ts';
import { judgmentRepository } from './repositories/judgments.ts';
import { modelRepository } from './repositories/models.ts';
import { rolloutRepository } from './repositories/rollouts.ts';
import { taskRepository } from './repositories/tasks.ts';
import { threadRepository } from './repositories/threads.ts';
import { tournamentRepository } from './repositories/tournaments.ts';
import { trainingRepository } from './repositories/trainings.ts';
import { windowSetRepository } from './repositories/window-sets.ts';
import { workflowRepository } from './repositories/workflows.ts';

export type Store = ReturnType<typeof openStore>;
type AnyProjector = (event: DomainEvent, context: EventContext) => void;

/**
 * Opens (and creates) the database of a data folder. There is one writer, the engine, and one way to change a row:
 * `append`, which adds events and the rows they stand for in one synchronous transaction. Never await inside one.
 * Throws `prerequisite` when the folder cannot be written, `conflict` when a newer version wrote it.
 */
export function openStore(folder: string) {
  const db = openDatabase(folder);
  migrate(db, resourcePath('migrations'));
  const artifacts = new Artifacts(db, join(folder, 'artifacts'));
  const repositories = createRepositories(db);
  const project = combine(Object.values(repositories).map((repository) => repository.projections));
  const listeners = new Set<(events: readonly StoredEvent[]) => void>();

  const insertEvent = db.prepare('INSERT INTO events (at, type, experimentId, payload) VALUES (?, ?, ?, ?)');
  const write = (events: readonly DomainEvent[]): StoredEvent[] => {
    const at = Date.now();
    return events.map((event) => {
      const parsed = DomainEvent.parse(event);
      const experimentId = 'experimentId' in parsed ? parsed.experimentId : null;
      const seq = Number(insertEvent.run(at, parsed.type, experimentId, JSON.stringify(parsed)).lastInsertRowid);
      project(parsed, { seq, at });
      return { seq, at, event: parsed };
    });
  };
  const transact = db.transaction((body: () => readonly DomainEvent[]) => write(body()));
  let owed: readonly DomainEvent[] = [];
  const commit = (body: () => readonly DomainEvent[]): StoredEvent[] => {
    const stored = guarded(() => transact.immediate(() => [...owed, ...body()]));
    owed = [];
    for (const listener of listeners) listener(stored);
    return stored;
  };

  const since = db.prepare<{ after: number; limit: number; experimentId: string | null }, EventRow>(
    `SELECT seq, at, payload FROM events WHERE seq > @after AND (@experimentId IS NULL OR experimentId = @experimentId) ORDER BY seq LIMIT @limit`,
  );
  const lastSeq = db.prepare<[], { seq: number | null }>('SELECT max(seq) AS seq FROM events');

  return {
    folder,
    artifacts,
    ...repositories,
    experiments: { ...repositories.experiments, ...withOwedEnds(repositories.experiments, () => owed) },
    /** Appends events and their rows; all or nothing. */
    append: (...events: DomainEvent[]) => commit(() => events),
    /** As `append`, for events whose bodies are put into `artifacts` by `body`: bodies and events commit together. */
    appendWith: (body: () => readonly DomainEvent[]) => commit(body),
    /**
     * As `append`, for events that end what was begun. One that a full disk refuses is kept in memory and committed
     * before the next event, whichever comes: how something ended is not lost, and the end itself does not fail.
     */
    appendEnd: (...events: DomainEvent[]): void => {
      try {
        commit(() => events);
      } catch (error) {
        if (!isDiskError(error)) throw error;
        owed = [...owed, ...events];
      }
    },
    /** What `appendEnd` could not commit yet. */
    owed: (): readonly DomainEvent[] => owed,
    /** Commits what is owed. Errors: `prerequisite` while the disk is still full. */
    commitOwed: (): void => {
      if (owed.length > 0) commit(() => []);
    },
    eventsSince: (after: number, limit: number, experimentId: string | null = null): StoredEvent[] =>
      since.all({ after, limit, experimentId }).map(parseEventRow),
    lastSeq: () => lastSeq.get()?.seq ?? 0,
    /** Called after each commit, in order. */
    onAppend(listener: (events: readonly StoredEvent[]) => void): () => void {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** Writes the rows of stored events into this (empty) database: the fold. */
    replay(events: Iterable<StoredEvent>): void {
      const insert = db.prepare('INSERT INTO events (seq, at, type, experimentId, payload) VALUES (?, ?, ?, ?, ?)');
      db.transaction(() => {
        for (const { seq, at, event } of events) {
          insert.run(seq, at, event.type, 'experimentId' in event ? event.experimentId : null, JSON.stringify(event));
          project(event, { seq, at });
        }
      })();
    },
    /** Size of the database file, small bodies included. */
    databaseBytes: () => {
      const pages = db.pragma('page_count', { simple: true }) as number;
      return pages * (db.pragma('page_size', { simple: true }) as number);
    },
    /** Every row of every table that is a fold of the log, for comparison. */
    dump: () => dumpTables(db),
    close: () => db.close(),
  };
}

interface EventRow {
  readonly seq: number;
  readonly at: number;
  readonly payload: string;
}

const parseEventRow = (row: EventRow): StoredEvent => ({
  seq: row.seq,
  at: row.at,
  event: DomainEvent.parse(JSON.parse(row.payload)),
});

function createRepositories(db: Database.Database) {
  return {
    experiments: experimentRepository(db),
    models: modelRepository(db),
    tasks: taskRepository(db),
    workflows: workflowRepository(db),
    episodes: episodeRepository(db),
    threads: threadRepository(db),
    judgments: judgmentRepository(db),
    integrity: integrityRepository(db),
    tournaments: tournamentRepository(db),
    windowSets: windowSetRepository(db),
    rollouts: rolloutRepository(db),
    trainings: trainingRepository(db),
  };
}

/** One projector per tag; an event nobody projects is a programming error, found at start rather than in the night. */
function combine(all: readonly Projections[]): AnyProjector {
  const byType = new Map<EventType, AnyProjector>();
  for (const projections of all)
    for (const [type, projector] of Object.entries(projections))
      byType.set(type as EventType, projector as AnyProjector);
  for (const option of DomainEvent.options) {
    const type = option.shape.type.value;
    if (!byType.has(type)) throw new MassError('internal', `No repository writes the rows of "${type}" events.`);
  }
  return (event, context) => byType.get(event.type)?.(event, context);
}

function openDatabase(folder: string): Database.Database {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const db = new Database(join(folder, 'mass.sqlite'));
    db.pragma('journal_mode = WAL');
    db.pragma('synchronous = FULL'); // a finished episode must survive power loss, not only a killed process
    db.pragma('foreign_keys = ON');
    db.pragma('busy_timeout = 5000');
    return db;
  } catch (cause) {
    const full = diskError(cause);
    if (full) throw full;
    throw new MassError(
      'prerequisite',
      `The data folder ${folder} cannot be opened for writing; choose another with --data or correct its permissions.`,
      { cause },
    );
  }
}

function guarded<T>(body: () => T): T {
  try {
    return body();
  } catch (cause) {
    throw diskError(cause) ?? cause;
  }
}

const notFolded = new Set(['events', 'artifacts', 'migrations', 'sqlite_sequence']);

function dumpTables(db: Database.Database): Record<string, unknown[]> {
  const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").all() as {
    name: string;
  }[];
  const out: Record<string, unknown[]> = {};
  for (const { name } of tables) {
    if (notFolded.has(name)) continue;
    const rows = db.prepare(`SELECT * FROM ${name}`).all();
    out[name] = rows.map((row) => JSON.stringify(row)).sort();
  }
  return out;
}
