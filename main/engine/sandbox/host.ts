import { spawn } from 'node:child_process';
import { setImmediate as turn } from 'node:timers/promises';
import { MassError } from '../../common/base/errors.ts';
import { measureDiskUsage } from './disk-usage.ts';
import { openOutputPipes } from './output-pipes.ts';
import { belowServing } from './priority.ts';
import { proportionalBytes, sampleTree, type TreeSample } from './process-tree.ts';
import type { CommandRequest, CommandResult, Sandbox } from './sandbox.ts';
import { notRun, type SupervisedTree, supervise } from './supervise.ts';
import { makeWorkspace } from './workspace.ts';

/** $1 command, $2 file KiB, $3 CPU seconds. Not the number of tasks: it counts everything this person runs. */
const LAUNCHER = 'ulimit -c 0; ulimit -f "$2"; ulimit -t "$3"; exec /bin/bash -c "$1"';

/**
 * Runs commands on the bare machine, as the engine's own user: no boundary at all. For people who accept that, on
 * machines without a sandbox. Limits hold as far as they can: wall time, output, the process session with its memory,
 * CPU and disk (Linux), file size. A process that starts a session of its own escapes the end of its command.
 */
export function createHostSandbox(): Sandbox {
  return { mode: 'host', owner: null, createWorkspace: (folder) => makeWorkspace(folder, null), run: runOnHost };
}

async function runOnHost(request: CommandRequest): Promise<CommandResult> {
  if (request.signal?.aborted) return notRun(null, '', true);
  if (request.command.includes('\0')) return notRun(126, 'The command holds a NUL byte; remove it.\n');
  const pipes = await openOutputPipes();
  try {
    const { fileMiB, cpuSeconds } = request.limits;
    const limits = [String(fileMiB * 1024), String(Math.ceil(cpuSeconds))];
    const below = belowServing('/bin/bash', ['-c', LAUNCHER, 'launcher', request.command, ...limits]);
    const child = spawn(below.program, below.args, {
      cwd: request.workspace,
      detached: true, // A session, so that it can be ended as a group.
      stdio: ['ignore', ...pipes.writers],
      env: hostEnvironment(request),
    });
    pipes.closeWriters();
    return await supervise(sessionTree({ child, stdout: pipes.stdout, stderr: pipes.stderr, request }), request);
  } catch (error) {
    if (error instanceof MassError) throw error;
    throw new MassError(
      'infrastructure',
      'A command could not be started; check that /bin/bash and the workspace exist.',
      {
        cause: error,
      },
    );
  } finally {
    pipes.closeWriters();
    pipes.stdout.destroy();
    pipes.stderr.destroy();
  }
}

/** Without the engine's variables, which may hold keys; the command can still read this person's files. */
const hostEnvironment = (request: CommandRequest): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH ?? '/usr/local/bin:/usr/bin:/bin',
  HOME: request.workspace,
  LANG: 'C.UTF-8',
  TERM: 'dumb',
  ...request.env,
});

function sessionTree(
  options: Pick<SupervisedTree, 'child' | 'stdout' | 'stderr'> & { request: CommandRequest },
): SupervisedTree {
  const { child, stdout, stderr, request } = options;
  const session = child.pid;
  const signalGroup = (signal: NodeJS.Signals | 0): boolean => {
    if (session === undefined) return false;
    try {
      return process.kill(-session, signal);
    } catch {
      return false; // ESRCH: nobody is left in the group.
    }
  };
  const sample = (): TreeSample | null =>
    process.platform === 'linux' && session !== undefined
      ? sampleTree('/proc', (stat) => stat.session === session && stat.state !== 'Z')
      : null;
  const diskBytes = async (stopAbove: number): Promise<number> =>
    (await measureDiskUsage(request.workspace, stopAbove)).bytes;
  return {
    child,
    stdout,
    stderr,
    started: turn(),
    kill: () => {
      signalGroup('SIGKILL');
      for (const stat of sample()?.stats ?? []) {
        try {
          process.kill(stat.pid, 'SIGKILL');
        } catch {
          // It ended meanwhile.
        }
      }
    },
    // Zombies of the group are no longer ours to wait for where /proc can tell them apart.
    gone: () => (process.platform === 'linux' ? (sample()?.processes ?? 0) === 0 : !signalGroup(0)),
    probes: {
      sample,
      exactMemoryBytes: (tree) => proportionalBytes('/proc', tree),
      temporaryBytes: () => 0,
      diskBytes,
    },
    finalDiskBytes: diskBytes,
  };
}
