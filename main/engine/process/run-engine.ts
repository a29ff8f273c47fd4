import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { MassError, toErrorData } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { StoredEvent } from '../../common/domain/events.ts';
import { type EngineFile, engineFileName, startErrorFileName } from '../../common/protocol/engine-file.ts';
import { writeFileAtomic } from '../../node/atomic-file.ts';
import { diskError } from '../../node/disk-error.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { processIdentity } from '../../node/process-identity.ts';
import { type EngineServer, startEngineServer } from '../server/engine-server.ts';
import { type DataFolderLock, lockDataFolder } from './lock.ts';

/** What the process needs of an engine; engine.ts has the real one. */
export interface HostedEngine {
  readonly handlers: EngineHandlers;
  onEvents(listener: (events: readonly StoredEvent[]) => void): () => void;
  shutdown(mode: 'after' | 'now'): Promise<void>;
  idle(): boolean;
}

export interface EngineProcessOptions {
  readonly version: string;
  readonly createEngine: (options: { dataFolder: string; version: string; logger: Logger }) => Promise<HostedEngine>;
  /** An engine nobody is connected to, with nothing running, ends after this long. */
  readonly idleMs?: number;
}

const defaultIdleMs = 15 * 60_000;

/** The life of an engine process: lock, open, listen, publish engine.json; ends with the process's exit. */
export async function runEngineProcess(argv: readonly string[], options: EngineProcessOptions): Promise<void> {
  let dataFolder: string | null = null;
  // Node's own warnings go there too, and its file may be on a full disk.
  process.stderr.on('error', () => undefined);
  try {
    const order = parseOrder(argv);
    dataFolder = order.dataFolder;
    await host({ ...order, ...options });
  } catch (error) {
    reportStartError(dataFolder, error);
    process.exit(1);
  }
}

function parseOrder(argv: readonly string[]): { dataFolder: string; port: number } {
  const { values } = parseArgs({
    args: [...argv],
    options: { data: { type: 'string' }, port: { type: 'string', default: '0' } },
  });
  const port = Number(values.port);
  if (values.data === undefined) throw new MassError('usage', 'Name the data folder: --data DIR.');
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new MassError('usage', `--port takes 0 to 65535, not "${values.port}".`);
  return { dataFolder: resolve(values.data), port };
}

async function host(options: EngineProcessOptions & { dataFolder: string; port: number }): Promise<void> {
  const { dataFolder, version } = options;
  mkdirSync(dataFolder, { recursive: true });
  const lock = lockDataFolder(dataFolder);
  const logger = stderrLogger();
  const engine = await options.createEngine({ dataFolder, version, logger });
  const token = randomBytes(32).toString('base64url');
  let end: (mode: 'after' | 'now') => void = () => undefined;
  const server = await startEngineServer({
    handlers: endingHandlers(engine.handlers, (mode) => end(mode)),
    onEvents: (listener) => engine.onEvents(listener),
    token,
    port: options.port,
    logger,
  });
  end = once((mode) => void endProcess({ dataFolder, engine, server, lock, logger }, mode));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => end('now'));
  const file: EngineFile = {
    pid: process.pid,
    identity: processIdentity(process.pid) ?? '',
    port: server.port,
    token,
    version,
    startedAt: Date.now(),
  };
  writeFileAtomic(join(dataFolder, engineFileName), JSON.stringify(file), 0o600);
  rmSync(join(dataFolder, startErrorFileName), { force: true });
  logger.log('info', 'The engine listens.', { pid: process.pid, port: server.port, dataFolder });
  endWhenIdle(
    () => server.connections() === 0 && engine.idle(),
    options.idleMs ?? defaultIdleMs,
    () => end('now'),
  );
}

/** `engine.stop` with `shutdown` ends the process once its reply is on the way. */
function endingHandlers(handlers: EngineHandlers, end: (mode: 'after' | 'now') => void): EngineHandlers {
  return {
    ...handlers,
    'engine.stop': async (params, context) => {
      const result = await handlers['engine.stop'](params, context);
      const { mode } = params;
      // setImmediate: the reply is written in the microtasks before it, the sockets close after it.
      if (params.shutdown && mode !== 'preview') setImmediate(() => end(mode));
      return result;
    },
  };
}

interface Parts {
  readonly dataFolder: string;
  readonly engine: HostedEngine;
  readonly server: EngineServer;
  readonly lock: DataFolderLock;
  readonly logger: Logger;
}

async function endProcess({ dataFolder, engine, server, lock, logger }: Parts, mode: 'after' | 'now'): Promise<void> {
  let code = 0;
  try {
    await engine.shutdown(mode);
  } catch (error) {
    code = 1;
    logger.log('error', 'The engine did not end in order.', { error: toErrorData(error) });
  }
  await server.close();
  rmSync(join(dataFolder, engineFileName), { force: true });
  lock.release();
  process.exit(code);
}

function endWhenIdle(idle: () => boolean, idleMs: number, end: () => void): void {
  let since: number | null = null;
  setInterval(
    () => {
      since = idle() ? (since ?? performance.now()) : null;
      if (since !== null && performance.now() - since >= idleMs) end();
    },
    Math.min(idleMs, 30_000),
  ).unref();
}

function once<A>(action: (argument: A) => void): (argument: A) => void {
  let done = false;
  return (argument) => {
    if (done) return;
    done = true;
    action(argument);
  };
}

/** To the log, which is also what a person who starts this by hand sees, and to the client that waits for a start. */
function reportStartError(dataFolder: string | null, error: unknown): void {
  const data = toErrorData(diskError(error) ?? error);
  stderrLogger().log('error', 'The engine cannot start.', { error: data });
  if (dataFolder === null) return;
  try {
    writeFileAtomic(join(dataFolder, startErrorFileName), JSON.stringify(data));
  } catch {
    // The folder cannot be written: stderr is what is left.
  }
}

/** Written at once and past `process.stderr`, which ends the process when the disk of its file is full. */
function stderrLogger(): Logger {
  return {
    log: (level, message, fields) => {
      const line = JSON.stringify({ at: new Date().toISOString(), level, message, ...fields });
      try {
        writeSync(process.stderr.fd, `${line}\n`);
      } catch {
        // A full disk or a reader that left: a line that cannot be written must not end the engine.
      }
    },
  };
}
