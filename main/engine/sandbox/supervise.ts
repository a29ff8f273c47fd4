import type { ChildProcess } from 'node:child_process';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { MassError } from '../../common/base/errors.ts';
import { HeadTailBuffer } from './head-tail-buffer.ts';
import type { CommandRequest, CommandResult } from './sandbox.ts';
import { type Limit, type TreeProbes, Watchdog } from './watchdog.ts';

/** A started command, as the supervisor needs to see it. */
export interface SupervisedTree {
  readonly child: ChildProcess;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Settles when the command itself runs (or has already ended); probes are used from then on. */
  readonly started: Promise<void>;
  /** SIGKILL to the whole tree, at any moment, any number of times. */
  readonly kill: () => void;
  /** Whether no process of the tree is left. */
  readonly gone: () => boolean;
  readonly probes: TreeProbes;
  /** Bytes of the workspace after the end, when nothing writes any more. */
  readonly finalDiskBytes: (stopAbove: number) => Promise<number>;
}

const MIB = 1024 * 1024;
const KILL_PATIENCE_MS = 10_000;
// 128 + SIGXCPU (24) and 128 + SIGXFSZ (25): how a shell reports a process that an rlimit ended.
const EXIT_CPU = 152;
const EXIT_FILE = 153;

export const notRun = (exitCode: number | null, stderr: string, isCancelled = false): CommandResult => ({
  exitCode,
  signal: null,
  limit: null,
  stdout: '',
  stderr,
  stdoutBytes: 0,
  stderrBytes: Buffer.byteLength(stderr),
  durationMs: 0,
  cancelled: isCancelled,
});

/**
 * Follows a command from start to the death of its last process: drains output, applies wall time, the watchdog and
 * cancellation. When it settles, nothing of the tree is left; a tree that cannot be killed throws `infrastructure`.
 */
export async function supervise(tree: SupervisedTree, request: CommandRequest): Promise<CommandResult> {
  const { child } = tree;
  const begin = performance.now();
  const stdout = new HeadTailBuffer(request.outputBytes);
  const stderr = new HeadTailBuffer(request.outputBytes);
  const closed = Promise.all([drain(tree.stdout, stdout), drain(tree.stderr, stderr)]);

  let limit: Limit | null = null;
  let isCancelled = false;
  let ended = false;
  const end = (reason: Limit | 'cancelled'): void => {
    if (ended || limit || isCancelled) return;
    if (reason === 'cancelled') isCancelled = true;
    else limit = reason;
    tree.kill();
  };
  const onAbort = (): void => end('cancelled');
  const watchdog = new Watchdog({ limits: request.limits, probes: tree.probes, exceeded: end });
  const wall = setTimeout(() => end('wall'), request.wallSeconds * 1000);
  request.signal?.addEventListener('abort', onAbort, { once: true });
  if (request.signal?.aborted) onAbort();
  try {
    const exit = exitOf(child);
    await Promise.race([tree.started, exit]);
    if (child.exitCode === null && child.signalCode === null) watchdog.start();
    const { code, signal } = await exit;
    ended = true;
    watchdog.stop();
    await killRest(tree);
    await Promise.race([closed, sleep(KILL_PATIENCE_MS, undefined, { ref: false })]);
    const stopped: Limit | null = limit;
    const killed = stopped !== null || isCancelled;
    return {
      exitCode: killed ? null : code,
      signal: killed ? 'SIGKILL' : signal,
      limit: stopped ?? (isCancelled ? null : await limitOfExit({ code, watchdog, tree, request })),
      stdout: stdout.toString(),
      stderr: stderr.toString(),
      stdoutBytes: stdout.totalBytes,
      stderrBytes: stderr.totalBytes,
      durationMs: performance.now() - begin,
      cancelled: isCancelled,
    };
  } finally {
    ended = true;
    clearTimeout(wall);
    watchdog.stop();
    request.signal?.removeEventListener('abort', onAbort);
    tree.stdout.destroy();
    tree.stderr.destroy();
  }
}

/** Reads a stream to its end; the end comes when the last process that holds the pipe is gone. */
function drain(stream: Readable, into: HeadTailBuffer): Promise<void> {
  stream.on('data', (chunk: Buffer) => into.push(chunk));
  return new Promise((resolve) => {
    stream.once('close', () => resolve());
    stream.once('error', () => resolve()); // A pipe that breaks has ended.
  });
}

function exitOf(child: ChildProcess): Promise<{ code: number | null; signal: string | null }> {
  return new Promise((resolve, reject) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    child.once('error', reject);
  });
}

/** Ends what a finished command left running (daemons) and waits until it is gone. */
async function killRest(tree: SupervisedTree): Promise<void> {
  const deadline = performance.now() + KILL_PATIENCE_MS;
  for (let wait = 1; !tree.gone(); wait = Math.min(wait * 2, 50)) {
    tree.kill();
    if (performance.now() > deadline)
      throw new MassError(
        'infrastructure',
        'Processes of a command could not be killed; restart the machine or the engine.',
      );
    await sleep(wait);
  }
}

/** Which limit a finished command ran into, as far as its traces show. */
async function limitOfExit(options: {
  code: number | null;
  watchdog: Watchdog;
  tree: SupervisedTree;
  request: CommandRequest;
}): Promise<Limit | null> {
  const { code, watchdog, tree, request } = options;
  const most = request.limits.diskMiB * MIB;
  if ((await tree.finalDiskBytes(most)) > most) return 'disk';
  if (code === EXIT_CPU) return 'cpu';
  if (code === EXIT_FILE) return 'file';
  return code !== 0 && watchdog.reachedTaskLimit ? 'processes' : null;
}
