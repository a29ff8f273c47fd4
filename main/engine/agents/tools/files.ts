import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, readdir, rename, unlink } from 'node:fs/promises';
import type { Owner } from '../../sandbox/sandbox.ts';
import { fileError, refuse, requireRegular, WorkspaceFolder, workspaceNames } from './workspace-folder.ts';

export interface FileToolsOptions {
  /** Absolute path of the workspace. */
  readonly workspace: string;
  /** Who files that are made belong to; null or absent: the engine itself. */
  readonly owner?: Owner | null;
  /** Most bytes one read returns. */
  readonly maxReadBytes?: number;
  /** Most bytes a written or edited file may have. */
  readonly maxWriteBytes?: number;
}

/**
 * The model's file tools, in the engine's process but inside the same boundary as its commands: only regular files
 * with one name below the workspace, no symlinks. Refusals are MassError `invalid_input` or `not_found`, each a
 * sentence for the model. Paths are relative to the workspace; `/workspace/x` means `x`.
 *
 * Commands of parallel workers may change the workspace at the same time. That cannot lead a tool outside (see
 * WorkspaceFolder); two writers of one file end with one of the two contents, whole.
 */
export interface FileTools {
  /** One line per entry: folders end in "/", files show bytes. "" for an empty folder. */
  list(path: string): Promise<string>;
  /** Lines `offset` (from 1) on, at most `limit` of them; says how to go on when the file has more. */
  read(path: string, range?: { readonly offset?: number; readonly limit?: number }): Promise<string>;
  /** Replaces or makes a file, and its folders. */
  write(path: string, content: string): Promise<void>;
  /** Replaces the one occurrence of `find`. */
  edit(path: string, change: { readonly find: string; readonly replace: string }): Promise<void>;
}

const MAX_LISTED = 500;
const CHUNK_BYTES = 64 * 1024;
const NEWLINE = 10;

export function createFileTools(options: FileToolsOptions): FileTools {
  const { workspace, owner = null, maxReadBytes = 256 * 1024, maxWriteBytes = 8 * 1024 * 1024 } = options;

  /** Opens the folder a file lies in, for the time of `use`. */
  async function within<T>(
    path: string,
    create: boolean,
    use: (folder: WorkspaceFolder, name: string) => Promise<T>,
  ): Promise<T> {
    const names = workspaceNames(path);
    const name = names.pop();
    if (name === undefined) throw refuse('The path names the workspace itself; name a file in it.');
    const folder = await WorkspaceFolder.open(workspace, names, create ? { owner } : null);
    try {
      return await use(folder, name);
    } catch (error) {
      throw fileError(error, name);
    } finally {
      await folder.close();
    }
  }

  const replace = async (folder: WorkspaceFolder, name: string, content: string): Promise<void> => {
    const bytes = Buffer.byteLength(content);
    if (bytes > maxWriteBytes)
      throw refuse(`The content has ${bytes} bytes and ${maxWriteBytes} are allowed; write it with a command.`);
    await writeWhole({ folder, name, content, owner });
  };

  return {
    list: async (path) => {
      const folder = await WorkspaceFolder.open(workspace, workspaceNames(path));
      try {
        return await listFolder(folder);
      } finally {
        await folder.close();
      }
    },
    read: (path, range = {}) =>
      within(path, false, async (folder, name) => {
        const { handle, stat } = await folder.openFile(name);
        try {
          return await readLines(handle, { ...checkedRange(range), maxBytes: maxReadBytes, size: stat.size, name });
        } finally {
          await handle.close();
        }
      }),
    write: (path, content) => within(path, true, (folder, name) => replace(folder, name, content)),
    edit: (path, change) =>
      within(path, false, async (folder, name) => {
        const text = await readWhole(folder, name, maxWriteBytes);
        await replace(folder, name, replaceOnce(text, change, name));
      }),
  };
}

async function listFolder(folder: WorkspaceFolder): Promise<string> {
  const names = (await readdir(folder.path)).sort();
  const lines: string[] = [];
  for (const name of names.slice(0, MAX_LISTED)) {
    const stat = await folder.stat(name);
    if (stat === null) continue;
    if (stat.isDirectory()) lines.push(`${name}/`);
    else if (stat.isFile()) lines.push(`${name} (${stat.size} bytes)`);
    else lines.push(`${name} (${stat.isSymbolicLink() ? 'symbolic link' : 'special file'})`);
  }
  if (names.length > MAX_LISTED) lines.push(`[${names.length - MAX_LISTED} more entries]`);
  return lines.join('\n');
}

function checkedRange(range: { readonly offset?: number; readonly limit?: number }): { first: number; most: number } {
  const { offset = 1, limit = Number.MAX_SAFE_INTEGER } = range;
  if (!Number.isInteger(offset) || offset < 1) throw refuse('offset is a line number and starts at 1.');
  if (!Number.isInteger(limit) || limit < 1) throw refuse('limit is a number of lines, at least 1.');
  return { first: offset, most: limit };
}

interface LineRequest {
  readonly first: number;
  readonly most: number;
  readonly maxBytes: number;
  readonly size: number;
  readonly name: string;
}

/** Takes chunks of a file and keeps the asked lines of it, up to a number of bytes. */
class LineWindow {
  readonly kept: Buffer[] = [];
  /** Number of the line that the next byte belongs to. */
  line = 1;
  /** Whether the file goes on behind what was kept. */
  hasMore = false;
  readonly #first: number;
  readonly #last: number;
  #room: number;

  constructor(request: LineRequest) {
    this.#first = request.first;
    this.#last = request.first + request.most - 1;
    this.#room = request.maxBytes;
  }

  push(chunk: Buffer): void {
    for (let start = 0; start < chunk.length && !this.hasMore; ) {
      const newline = chunk.indexOf(NEWLINE, start);
      const end = newline < 0 ? chunk.length : newline + 1;
      this.#take(chunk.subarray(start, end));
      if (newline >= 0 && !this.hasMore) this.line++;
      start = end;
    }
  }

  #take(piece: Buffer): void {
    if (this.line < this.#first) return;
    if (this.line > this.#last) {
      this.hasMore = true;
      return;
    }
    const fitting = piece.subarray(0, this.#room);
    this.kept.push(Buffer.from(fitting));
    this.#room -= fitting.length;
    this.hasMore = fitting.length < piece.length;
  }
}

/** Reads lines in bounded memory, whatever the size of the file. */
async function readLines(handle: FileHandle, request: LineRequest): Promise<string> {
  const { first, name } = request;
  const window = new LineWindow(request);
  const buffer = Buffer.alloc(CHUNK_BYTES);
  for (let position = 0; !window.hasMore; ) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) break;
    position += bytesRead;
    window.push(buffer.subarray(0, bytesRead));
  }
  const bytes = Buffer.concat(window.kept);
  if (bytes.includes(0)) throw refuse(`"${name}" is not text; use a command to look into it.`);
  if (bytes.length === 0 && first > 1) throw refuse(`"${name}" has fewer than ${first} lines; use a smaller offset.`);
  const text = bytes.toString('utf8');
  if (!window.hasMore) return text;
  const { line } = window;
  const isCut = bytes.length > 0 && bytes[bytes.length - 1] !== NEWLINE;
  const where = isCut ? `cut within line ${line}` : `line ${line} follows`;
  return `${text}${isCut ? '\n' : ''}[${where}; the file has ${request.size} bytes; go on with offset ${isCut ? line + 1 : line}]`;
}

async function readWhole(folder: WorkspaceFolder, name: string, maxBytes: number): Promise<string> {
  const { handle, stat } = await folder.openFile(name);
  try {
    if (stat.size > maxBytes)
      throw refuse(`"${name}" has ${stat.size} bytes and ${maxBytes} can be edited; use a command.`);
    // One byte more than allowed shows a file that grew since; nothing larger is ever held.
    const buffer = Buffer.alloc(stat.size + 1);
    let length = 0;
    for (let read = 1; read > 0 && length < buffer.length; length += read)
      read = (await handle.read(buffer, length, buffer.length - length, length)).bytesRead;
    if (length > stat.size) throw refuse(`"${name}" changed while it was read; try again.`);
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(buffer.subarray(0, length));
  } catch (error) {
    throw error instanceof TypeError ? refuse(`"${name}" is not UTF-8 text; use a command to change it.`) : error;
  } finally {
    await handle.close();
  }
}

function replaceOnce(text: string, change: { readonly find: string; readonly replace: string }, name: string): string {
  if (change.find === '') throw refuse('The text to find is empty; give a piece of the file to replace.');
  const at = text.indexOf(change.find);
  if (at < 0) throw refuse(`The text to find does not occur in "${name}"; read the file and copy it exactly.`);
  if (text.indexOf(change.find, at + 1) >= 0)
    throw refuse(`The text to find occurs more than once in "${name}"; include more of the lines around it.`);
  return text.slice(0, at) + change.replace + text.slice(at + change.find.length);
}

/** A reader sees the old content or the new one, never a part. An existing file keeps its permissions. */
async function writeWhole(parts: {
  folder: WorkspaceFolder;
  name: string;
  content: string;
  owner: Owner | null;
}): Promise<void> {
  const { folder, name, content, owner } = parts;
  const existing = await folder.stat(name);
  if (existing) requireRegular(existing, name);
  const temporary = folder.at(`.writing-${randomBytes(8).toString('hex')}`);
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    try {
      await handle.writeFile(content);
      if (owner) await handle.chown(owner.uid, owner.gid);
      await handle.chmod(existing ? existing.mode & 0o777 : 0o644);
    } finally {
      await handle.close();
    }
    await rename(temporary, folder.at(name));
  } catch (error) {
    await unlink(temporary).catch(() => undefined); // The first error is the one to report.
    throw error;
  }
}
