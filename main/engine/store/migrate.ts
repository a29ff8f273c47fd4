import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { MassError } from '../../common/base/errors.ts';

/**
 * Applies every `*.sql` of `folder` that the database has not seen, in name order, each in its own transaction.
 * Throws `conflict` when the database was written by a newer version (it holds a migration this folder lacks).
 */
export function migrate(db: Database.Database, folder: string): void {
  db.exec('CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, appliedAt INTEGER NOT NULL) STRICT');
  const known = readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort();
  const applied = new Set(
    (db.prepare('SELECT name FROM migrations').all() as { name: string }[]).map((row) => row.name),
  );
  const unknown = [...applied].filter((name) => !known.includes(name));
  if (unknown.length > 0)
    throw new MassError(
      'conflict',
      `This data folder was written by a newer version of MASS Lab (migration ${unknown[0]}); update the program or use another data folder.`,
    );
  for (const name of known) {
    if (applied.has(name)) continue;
    const sql = readFileSync(join(folder, name), 'utf8');
    db.transaction(() => {
      db.exec(sql);
      db.prepare('INSERT INTO migrations (name, appliedAt) VALUES (?, ?)').run(name, Date.now());
    })();
  }
}
