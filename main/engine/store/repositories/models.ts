import type Database from 'better-sqlite3';
import type { Projections } from '../projection.ts';

export interface ModelRow {
  readonly modelId: string;
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly architecture: string;
  readonly source: string;
  readonly registeredAt: number;
}

/** The registry of model files. Registering an id again (the file moved) replaces its path; experiments pin the hash. */
export function modelRepository(db: Database.Database) {
  const upsert = db.prepare(
    `INSERT INTO models (modelId, path, bytes, sha256, architecture, source, registeredAt)
     VALUES (@modelId, @path, @bytes, @sha256, @architecture, @source, @at)
     ON CONFLICT (modelId) DO UPDATE SET path = @path, bytes = @bytes, sha256 = @sha256, architecture = @architecture,
       source = @source, registeredAt = @at`,
  );
  const projections = {
    'model.registered': (event, { at }) => void upsert.run({ ...event, at }),
  } satisfies Projections;
  const byId = db.prepare<[string], ModelRow>('SELECT * FROM models WHERE modelId = ?');
  const all = db.prepare<[], ModelRow>('SELECT * FROM models ORDER BY modelId');
  return { projections, byId: (modelId: string) => byId.get(modelId), all: () => all.all() };
}
