import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { WindowDraft } from '../../common/domain/window-builder.ts';
import {
  type WindowManifest,
  type WindowRecord,
  type WindowRole,
  windowFiles,
} from '../../common/domain/window-set.ts';
import { sha256 } from '../../node/hashing.ts';

export type WindowMeta = Pick<WindowRecord, 'split' | 'taskId' | 'role' | 'episodeId' | 'threadId'>;
type Counts = WindowManifest['total'];
type Summary = Pick<WindowManifest, 'files' | 'total' | 'bySplit' | 'byTask' | 'leftOut'>;

const nothing = (): Counts => ({ windows: 0, tokens: 0, labelledTokens: 0 });
const FLUSH_BYTES = 1 << 20;

/**
 * Writes a window set into a folder beside its place and moves it there when it is whole: a folder under its own name is
 * complete, whatever happened to the process. Holds a few windows in memory at a time.
 */
export class WindowSetWriter {
  readonly #folder: string;
  readonly #temporary: string;
  readonly #tokens: HashedFile;
  readonly #windows: HashedFile;
  readonly #total = nothing();
  readonly #bySplit = { train: nothing(), validate: nothing() };
  readonly #byTask = new Map<string, Record<WindowRole, Counts>>();
  readonly #leftOut = { windows: 0, tokens: 0 };

  private constructor(folder: string, temporary: string, files: { tokens: HashedFile; windows: HashedFile }) {
    this.#folder = folder;
    this.#temporary = temporary;
    this.#tokens = files.tokens;
    this.#windows = files.windows;
  }

  /** What an earlier try left under the temporary name is removed. */
  static async open(folder: string): Promise<WindowSetWriter> {
    const temporary = `${folder}.writing`;
    await rm(temporary, { recursive: true, force: true });
    await mkdir(temporary, { recursive: true });
    const tokens = await HashedFile.create(join(temporary, windowFiles.tokens));
    const windows = await HashedFile.create(join(temporary, windowFiles.windows));
    return new WindowSetWriter(folder, temporary, { tokens, windows });
  }

  async add(meta: WindowMeta, { ids, blocks, labelledTokens, leftOut }: WindowDraft): Promise<void> {
    const counts = this.#byTask.get(meta.taskId) ?? emptyRoles();
    this.#byTask.set(meta.taskId, counts);
    const record: WindowRecord = {
      index: this.#total.windows,
      offset: this.#total.tokens,
      length: ids.length,
      ...meta,
      blocks: [...blocks],
      labelledTokens,
    };
    for (const count of [this.#total, this.#bySplit[meta.split], counts[meta.role]]) {
      count.windows++;
      count.tokens += ids.length;
      count.labelledTokens += labelledTokens;
    }
    if (leftOut > 0) this.#leftOut.windows++;
    this.#leftOut.tokens += leftOut;
    await this.#tokens.write(littleEndian(ids));
    await this.#windows.write(Buffer.from(`${JSON.stringify(record)}\n`));
  }

  /** The manifest's text, with what was counted; the set is in its place when this resolves. */
  async finish(manifestOf: (summary: Summary) => WindowManifest): Promise<{ manifest: WindowManifest; text: string }> {
    const files = { tokens: await this.#tokens.close(), windows: await this.#windows.close() };
    const manifest = manifestOf({
      files,
      total: this.#total,
      bySplit: this.#bySplit,
      byTask: Object.fromEntries(this.#byTask),
      leftOut: this.#leftOut,
    });
    const text = `${JSON.stringify(manifest, null, 2)}\n`;
    const last = await HashedFile.create(join(this.#temporary, windowFiles.manifest));
    await last.write(Buffer.from(text));
    await last.close();
    await syncFolder(this.#temporary);
    await rm(this.#folder, { recursive: true, force: true });
    await rename(this.#temporary, this.#folder);
    await syncFolder(dirname(this.#folder));
    return { manifest, text };
  }

  /** Leaves nothing behind; does nothing after `finish`. */
  async discard(): Promise<void> {
    await this.#tokens.abandon();
    await this.#windows.abandon();
    await rm(this.#temporary, { recursive: true, force: true });
  }
}

/** Whether `folder` holds the set whose manifest has this hash. The files' own hashes are in the manifest. */
export async function holdsWindowSet(folder: string, manifestHash: string): Promise<boolean> {
  try {
    return sha256(await readFile(join(folder, windowFiles.manifest))) === manifestHash;
  } catch {
    return false; // not there, or not readable: it is rendered again
  }
}

const emptyRoles = (): Record<WindowRole, Counts> => ({
  orchestrator: nothing(),
  subagent: nothing(),
  auxiliary: nothing(),
});

function littleEndian(ids: Uint32Array): Buffer {
  const bytes = Buffer.alloc(ids.length * 4);
  for (let i = 0; i < ids.length; i++) bytes.writeUInt32LE(ids[i] ?? 0, i * 4);
  return bytes;
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** A new file, written in large pieces, that knows the sha256 of what went into it. */
class HashedFile {
  readonly #file: FileHandle;
  readonly #hash: Hash = createHash('sha256');
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #closed = false;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async create(path: string): Promise<HashedFile> {
    return new HashedFile(await open(path, 'wx', 0o600));
  }

  async write(bytes: Buffer): Promise<void> {
    this.#hash.update(bytes);
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    if (this.#pendingBytes >= FLUSH_BYTES) await this.#flush();
  }

  /** Durable when it resolves, with the hash of the whole. */
  async close(): Promise<string> {
    await this.#flush();
    await this.#file.sync();
    await this.abandon();
    return this.#hash.digest('hex');
  }

  async abandon(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#file.close();
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    // writeFile goes on where the last one ended, and writes all of it.
    await this.#file.writeFile(bytes);
  }
}
