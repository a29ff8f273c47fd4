import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import type Database from 'better-sqlite3';
import { MassError } from '../../common/base/errors.ts';
import { writeFileAtomic } from '../../node/atomic-file.ts';
import { sha256 } from '../../node/hashing.ts';

/** Above this a compressed body is a file: SQLite reads small blobs faster than files, and large ones slower. */
const INLINE_BYTES = 64 * 1024;

/**
 * Content-addressed bodies, zstd-compressed. `put` of the same bytes twice stores them once. A body is durable when
 * `put` returns outside a transaction, or when the surrounding transaction commits.
 */
export class Artifacts {
  readonly #folder: string;
  readonly #exists;
  readonly #insert;
  readonly #select;
  readonly #files;

  constructor(db: Database.Database, folder: string) {
    this.#folder = folder;
    this.#exists = db.prepare<[string], { hash: string }>('SELECT hash FROM artifacts WHERE hash = ?');
    this.#insert = db.prepare('INSERT INTO artifacts (hash, bytes, storedBytes, body) VALUES (?, ?, ?, ?)');
    this.#select = db.prepare<[string], { bytes: number; body: Buffer | null }>(
      'SELECT bytes, body FROM artifacts WHERE hash = ?',
    );
    this.#files = db.prepare<[], { bytes: number }>(
      'SELECT coalesce(sum(storedBytes), 0) AS bytes FROM artifacts WHERE body IS NULL',
    );
  }

  /** Bytes of the bodies that are files of their own; the others are part of the database. */
  fileBytes(): number {
    return this.#files.get()?.bytes ?? 0;
  }

  /** Returns the sha256 of `data` (text as UTF-8). */
  put(data: string | Uint8Array): string {
    const bytes = typeof data === 'string' ? Buffer.from(data, 'utf8') : data;
    const hash = sha256(bytes);
    if (this.#exists.get(hash)) return hash;
    const stored = zstdCompressSync(bytes);
    if (stored.length <= INLINE_BYTES) {
      this.#insert.run(hash, bytes.length, stored.length, stored);
      return hash;
    }
    storeFile(this.pathOf(hash), stored);
    this.#insert.run(hash, bytes.length, stored.length, null);
    return hash;
  }

  putJson(value: unknown): string {
    return this.put(JSON.stringify(value));
  }

  /** Ids as little-endian unsigned 32-bit integers. */
  putIds(ids: readonly number[]): string {
    return this.put(new Uint8Array(Uint32Array.from(ids).buffer));
  }

  /** The bytes of `hash`. Throws `not_found` when absent and `internal` when the stored bytes no longer match it. */
  get(hash: string): Buffer {
    const row = this.#select.get(hash);
    if (!row) throw new MassError('not_found', `Artifact ${hash.slice(0, 8)} is not in this data folder.`);
    let bytes: Buffer;
    try {
      bytes = zstdDecompressSync(row.body ?? readFileSync(this.pathOf(hash)));
    } catch (cause) {
      throw damaged(hash, cause);
    }
    if (sha256(bytes) !== hash) throw damaged(hash);
    return bytes;
  }

  text(hash: string): string {
    return this.get(hash).toString('utf8');
  }

  json(hash: string): unknown {
    return JSON.parse(this.text(hash));
  }

  ids(hash: string): number[] {
    const bytes = this.get(hash);
    const out = new Array<number>(bytes.length / 4);
    for (let i = 0; i < out.length; i++) out[i] = bytes.readUInt32LE(i * 4);
    return out;
  }

  pathOf(hash: string): string {
    return join(this.#folder, hash.slice(0, 2), `${hash}.zst`);
  }
}

function damaged(hash: string, cause?: unknown): MassError {
  return new MassError(
    'internal',
    `Artifact ${hash.slice(0, 8)} is damaged on disk; restore the data folder from a copy, or prune the run it belongs to.`,
    { details: { hash }, ...(cause === undefined ? {} : { cause }) },
  );
}

/** A file left by a process that died before its row was committed is as good as a new one. */
function storeFile(path: string, bytes: Uint8Array): void {
  if (statSync(path, { throwIfNoEntry: false })?.size === bytes.length) return;
  mkdirSync(dirname(path), { recursive: true });
  writeFileAtomic(path, bytes, 0o600);
}
