import { constants } from 'node:fs';
import { chmod, copyFile, lstat, mkdir, mkdtemp, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { MassError } from '../../common/base/errors.ts';
import type { Task } from '../../common/domain/task.ts';
import { sha256File } from '../../node/file-hash.ts';

/** Largest accepted input file of a task, in bytes: every workspace gets a copy. */
export const largestDataFile = 256 << 20;

const DataFile = z.strictObject({
  path: z.string(),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.number().int().min(0),
});
export type DataFile = z.infer<typeof DataFile>;
const Index = z.strictObject({ contentHash: z.string(), files: z.array(DataFile) });
const indexName = '.index.json';

/** Input files of a task, made once and kept. Paths in `files` are relative to `folder`. */
export interface TaskData {
  readonly folder: string;
  readonly files: readonly DataFile[];
}

/**
 * Runs the data script as `python3 <script> <outDir> <...args>`, outDir being whatever path the process sees for it.
 * `outDir` does not exist yet: the runner creates it, so that it can belong to the identity the script runs as.
 * A script that fails must reject.
 */
export type RunDataScript = (script: string, args: readonly string[], outDir: string) => Promise<void>;

const underway = new Map<string, Promise<TaskData>>();

/**
 * The input files of a task, from the cache when its content hash was seen before. Concurrent calls for one task share
 * one run. A kill at any moment leaves either nothing or the whole folder under its final name.
 * @throws MassError infrastructure (the script failed) or invalid_input (it did not write what task.json declares)
 */
export function ensureTaskData(options: {
  task: Task;
  cacheRoot: string;
  runScript: RunDataScript;
}): Promise<TaskData> {
  const folder = join(options.cacheRoot, options.task.contentHash);
  const known = underway.get(folder);
  if (known) return known;
  const made = makeTaskData({ ...options, folder }).finally(() => underway.delete(folder));
  underway.set(folder, made);
  return made;
}

type Making = { task: Task; cacheRoot: string; runScript: RunDataScript; folder: string };

async function makeTaskData({ task, cacheRoot, runScript, folder }: Making): Promise<TaskData> {
  const { data, id } = task.manifest;
  if (!data) return { folder, files: [] };
  const kept = await readKept(folder, task.contentHash);
  if (kept) return kept;
  await rm(folder, { recursive: true, force: true });
  await mkdir(cacheRoot, { recursive: true });
  const scratch = await mkdtemp(join(cacheRoot, `.making-${id}-`));
  try {
    const outDir = join(scratch, 'out');
    await runScript(join(task.folder, data.script), [String(data.seed)], outDir).catch((cause: unknown) => {
      if (cause instanceof MassError) throw cause;
      throw new MassError('infrastructure', `The data script of task ${id} failed; run it by hand to see why.`, {
        cause,
      });
    });
    const staged = join(scratch, 'data');
    const files: DataFile[] = [];
    for (const path of data.files) files.push(await takeFile({ id, path, from: outDir, to: staged }));
    await writeSynced(join(staged, indexName), `${JSON.stringify({ contentHash: task.contentHash, files })}\n`);
    await rename(staged, folder);
    await syncFolder(cacheRoot);
    return { folder, files };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** The kept folder when every file still has the recorded hash, else null: a damaged cache is made again. */
async function readKept(folder: string, contentHash: string): Promise<TaskData | null> {
  const text = await readFile(join(folder, indexName), 'utf8').catch(() => null); // absent: never made
  if (text === null) return null;
  let index: z.infer<typeof Index>;
  try {
    index = Index.parse(JSON.parse(text));
  } catch {
    return null; // unreadable index: made again, the script is deterministic
  }
  if (index.contentHash !== contentHash) return null;
  for (const file of index.files) {
    const digest = await sha256File(join(folder, file.path)).catch(() => ''); // missing counts as damaged
    if (digest !== file.sha256) return null;
  }
  return { folder, files: index.files };
}

/** Copies one declared file out of the untrusted output folder. Links and special files are refused. */
async function takeFile(options: { id: string; path: string; from: string; to: string }): Promise<DataFile> {
  const { id, path, from, to } = options;
  const refuse = (problem: string, way: string): MassError =>
    new MassError('invalid_input', `The data script of task ${id} ${problem}; ${way}.`, { details: { path } });
  await refuseLinkedParents(from, path, refuse);
  const status = await lstat(join(from, path)).catch(() => null); // absent is reported below
  if (!status) throw refuse(`did not write ${path}`, 'write it or correct data.files in task.json');
  if (!status.isFile()) throw refuse(`wrote ${path} as something other than a plain file`, 'write a plain file');
  if (status.size > largestDataFile)
    throw refuse(`wrote ${status.size} bytes to ${path}, the limit is ${largestDataFile}`, 'make it smaller');
  const target = join(to, path);
  await mkdir(dirname(target), { recursive: true });
  await copyFile(join(from, path), target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
  await chmod(target, 0o444);
  await syncFile(target);
  const { size } = await lstat(target);
  return { path, sha256: await sha256File(target), bytes: size };
}

async function refuseLinkedParents(
  from: string,
  path: string,
  refuse: (a: string, b: string) => MassError,
): Promise<void> {
  const parts = path.split('/').slice(0, -1);
  for (let i = 1; i <= parts.length; i++) {
    const status = await lstat(join(from, ...parts.slice(0, i))).catch(() => null); // absent: reported by takeFile
    if (status && !status.isDirectory())
      throw refuse(`made a part of ${path} that is not a folder`, 'write plain folders');
  }
}

/**
 * Copies the input files into `<workspace>/data`, read-only (0444). Idempotent: a file already in place is replaced, so
 * a call cut short by a kill can be repeated. To be called before any model-written command has run there.
 * @throws MassError infrastructure when a file cannot be written
 */
export async function placeTaskData(data: TaskData, workspace: string): Promise<void> {
  const folder = join(workspace, 'data');
  try {
    for (const { path } of data.files) {
      const target = join(folder, path);
      await makeReadableFolders(workspace, dirname(target));
      const temporary = `${target}.placing`;
      await rm(temporary, { force: true });
      await copyFile(join(data.folder, path), temporary, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
      await chmod(temporary, 0o444);
      await rename(temporary, target);
    }
  } catch (cause) {
    throw new MassError(
      'infrastructure',
      `The input files cannot be placed in ${folder}; check disk space and permissions.`,
      {
        cause,
      },
    );
  }
}

/** Folders from below `top` down to `folder`, readable by whoever commands run as: a umask of 077 would hide the data. */
async function makeReadableFolders(top: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (let inner = folder; inner !== top; inner = dirname(inner)) await chmod(inner, 0o755);
}

async function writeSynced(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const file = await open(path, 'wx');
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** A rename survives a power cut only once its folder is synced. Windows cannot open folders; it needs no such call. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform !== 'win32') await syncFile(path);
}
