import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { MassError } from '../common/base/errors.ts';

/** Free bytes of the disk that holds `path`, or will hold it. */
export async function freeBytes(path: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(path);
    return bavail * bsize;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(path) === path) throw error;
    return freeBytes(dirname(path));
  }
}

/** Refuses work that the disk of `path` has no room for. `what` begins the sentence. Errors: `prerequisite`. */
export async function requireFreeBytes(path: string, needed: number, what: string): Promise<void> {
  const free = await freeBytes(path);
  if (free >= needed) return;
  throw new MassError(
    'prerequisite',
    `${what} needs ${gigabytes(needed)} on the disk of ${path} and ${gigabytes(free)} are free; free ${gigabytes(needed - free)}, then run again.`,
    { details: { disk: true, neededBytes: needed, freeBytes: free } },
  );
}

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(bytes < 1e8 ? 3 : 1)} GB`;
