import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { type FileReading, readBounded } from './read-file.ts';

export interface FoundFile {
  /** null: there, but no regular file that can be read */
  readonly reading: FileReading | null;
}

/** The absolute path of a file that may be opened; "missing", or "not-a-file" for what lies behind a link or is none. */
export type Located = { readonly raw: Buffer } | 'missing' | 'not-a-file';

/**
 * Looks a named file up directly, so that a crowded or unopened folder cannot make it look missing. A path that leaves
 * the workspace or passes through a link is not followed: the former is missing, the latter is there but no file.
 */
export async function locatePath(workspace: string, path: string): Promise<Located> {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.length === 0 || parts.includes('..') || path.startsWith('/') || path.includes('\0')) return 'missing';
  let at = workspace;
  for (const [index, part] of parts.entries()) {
    at = join(at, part);
    const stat = await lstat(at).catch(() => null); // Whatever the reason, nothing can be delivered there.
    if (stat === null) return 'missing';
    if (index < parts.length - 1 ? !stat.isDirectory() : !stat.isFile()) return 'not-a-file';
  }
  return { raw: Buffer.from(at) };
}

/** As `locatePath`, and reads it within bounds. Returns undefined when nothing has that path. */
export async function locateFile(workspace: string, path: string): Promise<FoundFile | undefined> {
  const located = await locatePath(workspace, path);
  if (located === 'missing') return undefined;
  return { reading: located === 'not-a-file' ? null : await readBounded(located.raw) };
}
