import type Database from 'better-sqlite3';
import type { EventOf, EventType } from '../../common/domain/events.ts';

export interface EventContext {
  readonly seq: number;
  readonly at: number;
}

/** Writes one event's rows. Runs inside the transaction that appends the event. */
export type Projector<T extends EventType> = (event: EventOf<T>, context: EventContext) => void;

/** What a repository contributes: how its events become rows. */
export type Projections = { readonly [T in EventType]?: Projector<T> };

/** Named-parameter insert of `columns` into `table`. */
export function inserter(db: Database.Database, table: string, columns: readonly string[]) {
  return db.prepare(
    `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${columns.map((name) => `@${name}`).join(', ')})`,
  );
}

/** The same, putting the row in the place of one with its key. */
export function replacer(db: Database.Database, table: string, columns: readonly string[]) {
  return db.prepare(
    `INSERT OR REPLACE INTO ${table} (${columns.join(', ')}) VALUES (${columns.map((name) => `@${name}`).join(', ')})`,
  );
}

/** SQLite has no booleans. */
export const bit = (value: boolean): 0 | 1 => (value ? 1 : 0);
