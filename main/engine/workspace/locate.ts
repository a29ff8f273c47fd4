import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { type FileReading, readBounded } from './read-file.ts';

export interface FoundFile {
  /** null: there, but no regular file that can be read */
  readonly reading: FileReading | null;
}

/**
 * Looks a named file up directly, so that a crowded or unopened folder cannot make a deliverable look missing.
 * A path that leaves the workspace or passes through a link is not followed: the former is missing, the latter is there
 * but no file. Returns undefined when nothing has that path.
 */
export async function locateFile(workspace: string, path: string): Promise<FoundFile | undefined> {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.length === 0 || parts.includes('..') || path.startsWith('/') || path.includes('\0')) return undefined;
  let at = workspace;
  for (const [index, part] of parts.entries()) {
    at = join(at, part);
    const stat = await lstat(at).catch(() => null); // Whatever the reason, nothing can be delivered there.
    if (stat === null) return undefined;
    if (index < parts.length - 1 && !stat.isDirectory()) return { reading: null };
  }
  return { reading: await readBounded(Buffer.from(at)) };
}
