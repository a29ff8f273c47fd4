import { constants, type Dirent } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { escapeName } from './visible-text.ts';

/** Entries visited at most; a workspace beyond it is reported as not walked completely. */
export const MAX_WALKED = 20_000;
export const MAX_DEPTH = 12;
/** Caches, repositories and environments: counted, not opened. */
const unopened = new Set([
  '.git',
  '__pycache__',
  'node_modules',
  '.venv',
  'venv',
  '.pytest_cache',
  '.ipynb_checkpoints',
]);

export interface WalkedEntry {
  /** raw bytes of the absolute path; never part of a bundle */
  readonly raw: Buffer;
  /** escaped path relative to the workspace, "/" between parts */
  readonly path: string;
  readonly type: 'file' | 'folder' | 'symlink' | 'special' | 'unreadable';
  readonly bytes?: number;
  readonly entries?: number;
}

export interface Walk {
  readonly entries: readonly WalkedEntry[];
  readonly complete: boolean;
}

const slash = Buffer.from('/');
const byPath = (a: { path: string }, b: { path: string }): number => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0);

/**
 * Lists a workspace breadth first, so that a deep or crowded folder cannot hide what lies near the root. Links are
 * listed and never followed. Opened folders themselves are not entries. The result is sorted by path.
 */
export async function walkWorkspace(workspace: string): Promise<Walk> {
  const out: WalkedEntry[] = [];
  let level: { raw: Buffer; path: string }[] = [{ raw: Buffer.from(workspace), path: '' }];
  let visited = 0;
  for (let depth = 0; level.length > 0; depth++) {
    const next: { raw: Buffer; path: string }[] = [];
    for (const folder of level) {
      const children = await childrenOf(folder);
      if (children === null) {
        out.push({ ...folder, type: 'unreadable' });
        continue;
      }
      for (const child of children) {
        if (++visited > MAX_WALKED) return { entries: out.sort(byPath), complete: false };
        const { opens, entry } = await describe(child, depth);
        if (opens) next.push(child);
        else out.push(entry);
      }
    }
    level = next.sort(byPath);
  }
  return { entries: out.sort(byPath), complete: true };
}

interface Child {
  readonly raw: Buffer;
  readonly path: string;
  readonly name: string;
  readonly dirent: Dirent<Buffer>;
}

async function childrenOf(folder: { raw: Buffer; path: string }): Promise<Child[] | null> {
  let dirents: Dirent<Buffer>[];
  try {
    dirents = await readdir(folder.raw, { withFileTypes: true, encoding: 'buffer' });
  } catch {
    return null; // Listed as unreadable: that is what can be said of it.
  }
  return dirents
    .map((dirent) => {
      const name = escapeName(dirent.name);
      const path = folder.path === '' ? name : `${folder.path}/${name}`;
      return { raw: Buffer.concat([folder.raw, slash, dirent.name]), path, name, dirent };
    })
    .sort(byPath);
}

async function describe(child: Child, depth: number): Promise<{ opens: boolean; entry: WalkedEntry }> {
  const { raw, path, name, dirent } = child;
  const entry = (type: WalkedEntry['type'], more: Partial<WalkedEntry> = {}) => ({
    opens: false,
    entry: { raw, path, type, ...more },
  });
  if (dirent.isSymbolicLink()) return entry('symlink');
  if (dirent.isDirectory()) {
    if (!unopened.has(name) && depth + 1 < MAX_DEPTH) return { opens: true, entry: { raw, path, type: 'folder' } };
    const inside = await childrenOf(child);
    return inside === null ? entry('unreadable') : entry('folder', { entries: inside.length });
  }
  if (!dirent.isFile()) return entry('special');
  const bytes = await sizeOf(raw);
  return bytes === null ? entry('unreadable') : entry('file', { bytes });
}

async function sizeOf(raw: Buffer): Promise<number | null> {
  try {
    const stat = await lstat(raw);
    return (stat.mode & constants.S_IFMT) === constants.S_IFREG ? stat.size : null;
  } catch {
    return null; // It vanished or is forbidden: listed as unreadable.
  }
}
