import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, mkdtemp, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { projectRoot } from '../../node/project-root.ts';

const exec = promisify(execFile);

/** Where models for tests are kept between runs; git ignores it. */
export const testModels = join(projectRoot, '.mass', 'test-models');

/** Runs a program; a failure carries what it wrote to stderr. */
export async function runTool(command: string, args: readonly string[], env?: Record<string, string>): Promise<void> {
  await exec(command, [...args], { maxBuffer: 16 << 20, env: { ...process.env, ...env } });
}

export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** Short hash of files, for names of what was made from them. */
export async function hashOf(paths: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const path of paths) hash.update(await readFile(path));
  return hash.digest('hex').slice(0, 12);
}

/** A lock older than this was left by a process that died: installing takes about a minute. */
const STALE_LOCK_MS = 10 * 60_000;

/**
 * Makes `target` once, also when several test processes ask at the same time. `make` writes below a temporary folder it
 * is given and returns the path to move to `target`.
 */
export async function makeOnce(target: string, make: (temporary: string) => Promise<string>): Promise<string> {
  if (await exists(target)) return target;
  await mkdir(join(target, '..'), { recursive: true });
  const lock = `${target}.lock`;
  while (!(await lockFolder(lock))) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    if (await exists(target)) return target;
  }
  const temporary = await mkdtemp(`${target}.making-`);
  try {
    if (!(await exists(target))) await rename(await make(temporary), target);
  } finally {
    await rm(temporary, { recursive: true, force: true });
    await rm(lock, { recursive: true, force: true });
  }
  return target;
}

async function lockFolder(lock: string): Promise<boolean> {
  try {
    await mkdir(lock);
    return true;
  } catch {
    // Held by another process, unless that one died long ago.
    const age = await stat(lock).then(
      ({ mtimeMs }) => Date.now() - mtimeMs,
      () => 0,
    );
    if (age > STALE_LOCK_MS) await rm(lock, { recursive: true, force: true });
    return false;
  }
}
