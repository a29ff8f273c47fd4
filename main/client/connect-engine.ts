import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fromErrorData, MassError } from '../common/base/errors.ts';
import { EngineFile, engineFileName, startErrorFileName } from '../common/protocol/engine-file.ts';
import { ErrorDataSchema } from '../common/protocol/error-data.ts';
import { diskFull, leastFreeBytes } from '../node/disk-error.ts';
import { isSameProcess } from '../node/process-identity.ts';
import { projectRoot } from '../node/project-root.ts';
import { type EngineConnection, openConnection } from './connection.ts';
import { engineEnvironment } from './engine-environment.ts';

export interface ConnectOptions {
  readonly dataFolder: string;
  /** start an engine when none runs */
  readonly start: boolean;
  /** another engine entry than main/engine/main.ts */
  readonly entry?: string | undefined;
}

export interface AttachedEngine extends EngineConnection {
  /** this call started the engine */
  readonly started: boolean;
}

const startWaitMs = 60_000;
const pollMs = 50;
const starterEndMs = 5000;
/** How long to believe that the lock's owner is only starting or ending. */
const conflictWaitMs = 15_000;
const conflictPauseMs = 500;

/**
 * Attaches to the engine of a data folder, or starts one.
 *
 * @throws MassError `not_found` when none runs and `start` is false; the engine's own error when it cannot start.
 */
export async function connectEngine(options: ConnectOptions): Promise<AttachedEngine> {
  const dataFolder = resolve(options.dataFolder);
  const running = readEngineFile(dataFolder);
  if (running !== null) return { ...(await openConnection(running)), started: false };
  if (!options.start) throw new MassError('not_found', `No engine runs for ${dataFolder}.`);
  return await startEngine(dataFolder, options.entry ?? join(projectRoot, 'main/engine/main.ts'));
}

/** null: no engine, or one that died without removing its file. */
export function readEngineFile(dataFolder: string): EngineFile | null {
  const parsed = EngineFile.safeParse(readJson(join(dataFolder, engineFileName)));
  return parsed.success && isSameProcess(parsed.data.pid, parsed.data.identity) ? parsed.data : null;
}

async function startEngine(dataFolder: string, entry: string): Promise<AttachedEngine> {
  const conflictDeadline = performance.now() + conflictWaitMs;
  while (true) {
    const child = await spawnEngine(dataFolder, entry);
    try {
      return await attachTo(dataFolder, child, startWaitMs);
    } catch (error) {
      // The owner is another client's engine that does not listen yet, or one that is about to end.
      const passing = error instanceof MassError && error.code === 'conflict' && performance.now() < conflictDeadline;
      if (!passing) throw error;
    }
    await sleep(conflictPauseMs);
    const file = readEngineFile(dataFolder);
    if (file !== null) return { ...(await openConnection(file)), started: false };
  }
}

async function attachTo(dataFolder: string, child: ChildProcess, waitMs: number): Promise<AttachedEngine> {
  const deadline = performance.now() + waitMs;
  while (performance.now() < deadline) {
    const file = readEngineFile(dataFolder);
    if (file !== null) {
      if (file.pid !== child.pid) await endStarter(child);
      return { ...(await openConnection(file)), started: file.pid === child.pid };
    }
    if (child.exitCode !== null || child.signalCode !== null) throw readStartError(dataFolder, child);
    await sleep(pollMs);
  }
  child.kill('SIGTERM');
  throw new MassError('infrastructure', `The engine did not answer in ${waitMs / 1000} s; see ${logPath(dataFolder)}.`);
}

/**
 * Another client's engine was first. Our own process may still be on its way to the lock: left alone, it would become
 * the engine of a folder whose engine has just been stopped.
 */
async function endStarter(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGTERM');
  const impatient = setTimeout(() => child.kill('SIGKILL'), starterEndMs);
  await exited;
  clearTimeout(impatient);
}

async function spawnEngine(dataFolder: string, entry: string): Promise<ChildProcess> {
  let log: number;
  try {
    makeFolder(join(dataFolder, 'logs'));
    rmSync(join(dataFolder, startErrorFileName), { force: true });
    log = openSync(logPath(dataFolder), 'a', 0o600);
  } catch (error) {
    if (isFull(dataFolder)) throw diskFull({ cause: error });
    throw new MassError('prerequisite', `${dataFolder} cannot be written; choose another folder with --data.`, {
      cause: error,
    });
  }
  try {
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', entry, '--data', dataFolder], {
      detached: true, // a session of its own: neither Ctrl-C nor the closing terminal reaches it
      stdio: ['ignore', log, log],
      env: engineEnvironment(process.env),
      windowsHide: true,
    });
    await new Promise<void>((spawned, reject) => {
      child.once('spawn', () => spawned());
      child.once('error', reject);
    });
    child.unref();
    return child;
  } finally {
    closeSync(log);
  }
}

function readStartError(dataFolder: string, child: ChildProcess): MassError {
  const parsed = ErrorDataSchema.safeParse(readJson(join(dataFolder, startErrorFileName)));
  if (parsed.success) return fromErrorData(parsed.data);
  if (isFull(dataFolder)) return diskFull({}); // not even the file with its error could be written
  const how = child.signalCode ?? `code ${child.exitCode}`;
  return new MassError('infrastructure', `The engine ended while starting (${how}); see ${logPath(dataFolder)}.`);
}

/** As mkdir with `recursive`, which never returns below /proc: there, making a folder in one that exists says ENOENT. */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  try {
    mkdirSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error; // another client was first
  }
}

function isFull(dataFolder: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(dataFolder);
    return bavail * bsize < leastFreeBytes;
  } catch {
    return false; // no such folder: something else is wrong
  }
}

const logPath = (dataFolder: string): string => join(dataFolder, 'logs', 'engine.log');

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return null; // absent or damaged: the caller's schema refuses null
  }
}
