import fs from 'node:fs';
import path from 'node:path';

export interface DiskUsage {
  /** Allocated bytes (blocks, so holes cost nothing) plus ENTRY_BYTES per entry; a hard-linked file counts once. */
  readonly bytes: number;
  readonly entries: number;
  /** Directories that could not be read. */
  readonly unreadable: readonly string[];
}

/** What an entry costs beside its blocks: an inode and a directory record. Bounds floods of empty files. */
export const ENTRY_BYTES = 512;
const ENTRIES_PER_TURN = 512;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/**
 * Measures a folder without following symlinks, yielding to the event loop every few milliseconds. Stops early once
 * `stopAbove` bytes are exceeded, so a full folder costs no more than a legal one. Entries that vanish are skipped.
 */
export async function measureDiskUsage(root: string, stopAbove = Number.POSITIVE_INFINITY): Promise<DiskUsage> {
  const folders = [root];
  const linked = new Set<string>();
  const unreadable: string[] = [];
  let bytes = 0;
  let entries = 0;
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const name of listNames(folder, unreadable)) {
      const file = path.join(folder, name);
      const stat = fs.lstatSync(file, { throwIfNoEntry: false });
      if (!stat) continue;
      entries++;
      bytes += ENTRY_BYTES;
      if (!stat.isDirectory() && stat.nlink > 1) {
        const key = `${stat.dev}:${stat.ino}`;
        if (linked.has(key)) continue;
        linked.add(key);
      }
      bytes += stat.blocks * 512;
      if (bytes > stopAbove) return { bytes, entries, unreadable };
      if (stat.isDirectory()) folders.push(file);
      if (entries % ENTRIES_PER_TURN === 0) await turn();
    }
  }
  return { bytes, entries, unreadable };
}

function listNames(folder: string, unreadable: string[]): string[] {
  try {
    return fs.readdirSync(folder);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EACCES') unreadable.push(folder);
    else if (code !== 'ENOENT' && code !== 'ENOTDIR' && code !== 'ENAMETOOLONG') throw error;
    return [];
  }
}

/**
 * Makes directories that a command closed to us readable again, so that nothing hides from the measure. Only while no
 * process of the command is alive: chmod follows symlinks.
 */
export async function measureClosedFolders(root: string, stopAbove: number): Promise<DiskUsage> {
  for (;;) {
    const usage = await measureDiskUsage(root, stopAbove);
    const own = usage.unreadable.filter((folder) => fs.lstatSync(folder).uid === process.getuid?.());
    if (own.length === 0) return usage;
    for (const folder of own) fs.chmodSync(folder, 0o700);
  }
}

/**
 * Bytes of files that were deleted but are still open: invisible to a walk, yet on the disk. `procfs` is the tree's
 * own mount, `device` the file system of the workspace.
 */
export function deletedOpenBytes(procfs: string, pids: readonly number[], device: number): number {
  const seen = new Set<number>();
  let bytes = 0;
  for (const pid of pids) {
    let names: string[];
    try {
      names = fs.readdirSync(`${procfs}/${pid}/fd`);
    } catch {
      continue; // It ended, or is ending.
    }
    for (const name of names) {
      try {
        const stat = fs.statSync(`${procfs}/${pid}/fd/${name}`);
        if (stat.dev !== device || stat.nlink > 0 || !stat.isFile() || seen.has(stat.ino)) continue;
        seen.add(stat.ino);
        bytes += stat.blocks * 512;
      } catch {
        // Closed since, or not a file.
      }
    }
  }
  return bytes;
}
