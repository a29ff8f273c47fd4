import { constants, type Stats } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { lstat, mkdir, open } from 'node:fs/promises';
import { MassError } from '../../../common/base/errors.ts';
import { diskError } from '../../../node/disk-error.ts';
import type { Owner } from '../../sandbox/sandbox.ts';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
/** What commands call the workspace; the model may use it in paths. */
const INSIDE = '/workspace';
const MAX_DEPTH = 64;

export const refuse = (message: string, cause?: unknown): MassError =>
  new MassError('invalid_input', message, cause === undefined ? {} : { cause });

/** Splits a path that a model gave into names below the workspace. Refuses everything that could lead out of it. */
export function workspaceNames(given: string): string[] {
  let path = given;
  if (path === INSIDE || path.startsWith(`${INSIDE}/`)) path = path.slice(INSIDE.length + 1);
  else if (path.startsWith('/'))
    throw refuse(`"${given}" is outside the workspace; give a path relative to it, such as report.md.`);
  if (path.includes('\0')) throw refuse('The path holds a NUL character; remove it.');
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) throw refuse(`"${given}" contains ".."; give a path inside the workspace without it.`);
  if (names.length > MAX_DEPTH) throw refuse(`"${given.slice(0, 80)}..." is nested too deeply; use fewer folders.`);
  return names;
}

/**
 * A held-open folder. Names are looked up in it one at a time and symlinks are never followed (openat(2) with
 * O_NOFOLLOW, through /proc/self/fd on Linux), so a command that swaps a folder for a symlink at any moment gains
 * nothing. Elsewhere names are joined to the path; there commands only run in host mode, which has no boundary.
 */
export class WorkspaceFolder {
  readonly #handle: FileHandle;
  readonly #path: string;

  private constructor(handle: FileHandle, path: string) {
    this.#handle = handle;
    this.#path = process.platform === 'linux' ? `/proc/self/fd/${handle.fd}` : path;
  }

  /** Opens the folder `names` below the workspace; with `create`, makes missing ones for `owner`. */
  static async open(
    workspace: string,
    names: readonly string[],
    create: { readonly owner: Owner | null } | null = null,
  ): Promise<WorkspaceFolder> {
    let folder = new WorkspaceFolder(await open(workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), workspace);
    for (const name of names) {
      const parent = folder;
      try {
        folder = await parent.#enter(name, create);
      } finally {
        await parent.close();
      }
    }
    return folder;
  }

  async #enter(name: string, create: { readonly owner: Owner | null } | null): Promise<WorkspaceFolder> {
    const path = this.at(name);
    const isNew = create !== null && (await this.stat(name)) === null;
    if (isNew) await mkdir(path, { mode: 0o755 });
    try {
      const entered = new WorkspaceFolder(await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), path);
      if (isNew && create.owner) await entered.#handle.chown(create.owner.uid, create.owner.gid);
      return entered;
    } catch (error) {
      const stat = await this.stat(name);
      if (stat === null) throw new MassError('not_found', `There is no folder "${name}" here; list the files first.`);
      if (stat.isSymbolicLink()) throw refuse(`"${name}" is a symbolic link; file tools do not follow links.`);
      if (!stat.isDirectory()) throw refuse(`"${name}" is not a folder.`);
      throw fileError(error, name);
    }
  }

  /** A path for system calls that must not follow the last name. */
  at(name: string): string {
    return `${this.#path}/${name}`;
  }

  /** The folder itself, for reading its names. */
  get path(): string {
    return `${this.#path}/`;
  }

  async stat(name: string): Promise<Stats | null> {
    try {
      return await lstat(this.at(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw fileError(error, name);
    }
  }

  /** Opens a regular file that has one name only: a hard link could be another name of a file elsewhere. */
  async openFile(name: string): Promise<{ handle: FileHandle; stat: Stats }> {
    const before = await this.stat(name);
    if (before === null) throw new MassError('not_found', `There is no file "${name}"; list the files first.`);
    requireRegular(before, name);
    // O_NONBLOCK: if the file was swapped for a pipe since, opening must not wait for a writer.
    const handle = await open(this.at(name), O_RDONLY | O_NOFOLLOW | constants.O_NONBLOCK).catch((error: unknown) => {
      throw fileError(error, name);
    });
    try {
      const stat = await handle.stat();
      requireRegular(stat, name);
      return { handle, stat };
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}

export function requireRegular(stat: Stats, name: string): void {
  if (stat.isSymbolicLink()) throw refuse(`"${name}" is a symbolic link; file tools do not follow links.`);
  if (stat.isDirectory()) throw refuse(`"${name}" is a folder; name a file.`);
  if (!stat.isFile()) throw refuse(`"${name}" is a special file, not a regular one; use a command for it.`);
  if (stat.nlink > 1) throw refuse(`"${name}" is a hard link; copy it to a new file first.`);
}

/** What a failed system call means to the model; anything else is trouble of the machine. */
export function fileError(error: unknown, name: string): unknown {
  if (error instanceof MassError) return error;
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENAMETOOLONG':
      return refuse(`The name "${name.slice(0, 40)}..." is too long; use a shorter one.`, error);
    case 'ELOOP':
      return refuse(`"${name}" is a symbolic link; file tools do not follow links.`, error);
    case 'EACCES':
    case 'EPERM':
      return refuse(`"${name}" cannot be opened with its permissions; change them with a command first.`, error);
    case 'ENOENT':
    case 'ENOTDIR':
    case 'EISDIR':
    case 'ENXIO':
      return refuse(`"${name}" changed while it was used; list the files and try again.`, error);
    default:
      return (
        diskError(error) ??
        new MassError('infrastructure', `The workspace cannot be used ("${name}"); check the disk.`, {
          cause: error,
        })
      );
  }
}
