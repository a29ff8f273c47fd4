import { spawn } from 'node:child_process';
import fs from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { MassError } from '../../common/base/errors.ts';
import { bubblewrapArguments, FD, INSIDE, type Mount, PASSWD } from './bubblewrap-arguments.ts';
import { NamespaceTree } from './namespace-tree.ts';
import { openOutputPipes } from './output-pipes.ts';
import type { CommandRequest, CommandResult, Owner, Sandbox } from './sandbox.ts';
import { notRun, supervise } from './supervise.ts';
import { makeWorkspace } from './workspace.ts';

/** What the installed bubblewrap can do; found by `detectSandbox`. */
export interface BubblewrapFeatures {
  /** Absolute path of the program. */
  readonly program: string;
  /** Takes mounts as open descriptors: needed when the engine is root, whose folders an unprivileged bwrap cannot enter. */
  readonly bindFd: boolean;
  /** Can forbid user namespaces inside (bubblewrap 0.8). */
  readonly disableUserNamespaces: boolean;
}

/**
 * Who runs commands when the engine is root. A fixed id, so that workspaces keep their owner across restarts; below
 * 65536, so that it exists in containers too; above the ids that distributions give to people and services.
 */
export const SANDBOX_OWNER: Owner = { uid: 64_123, gid: 64_123 };
// The kernel's MAX_ARG_STRLEN is 128 KiB for one argument, with its end.
const MAX_COMMAND_BYTES = 128 * 1024 - 1;

export function createBubblewrapSandbox(features: BubblewrapFeatures): Sandbox {
  const owner = process.getuid?.() === 0 ? SANDBOX_OWNER : null;
  if (owner && !features.bindFd)
    throw new MassError(
      'prerequisite',
      'This bubblewrap is too old to be used by root; install version 0.9 (or a patched 0.8), or start the engine as an ordinary user.',
    );
  return {
    mode: 'bubblewrap',
    owner,
    createWorkspace: (folder) => makeWorkspace(folder, owner),
    run: (request) => runCommand(request, features, owner),
  };
}

async function runCommand(
  request: CommandRequest,
  features: BubblewrapFeatures,
  owner: Owner | null,
): Promise<CommandResult> {
  const refusal = refuse(request);
  if (refusal) return refusal;
  const tree = await start(request, features, owner);
  try {
    const result = await supervise(tree, request);
    if (!tree.hasStarted && !result.cancelled && result.limit === null) throw neverStarted(result.stderr);
    return result;
  } catch (error) {
    throw error instanceof MassError ? error : neverStarted(String(error), error);
  } finally {
    tree.close();
  }
}

/** Answers requests that no process can be started for, as a shell would. */
function refuse(request: CommandRequest): CommandResult | null {
  if (request.signal?.aborted) return notRun(null, '', true);
  if (request.command.includes('\0')) return notRun(126, 'The command holds a NUL byte; remove it.\n');
  const bytes = Buffer.byteLength(request.command);
  if (bytes <= MAX_COMMAND_BYTES) return null;
  return notRun(
    126,
    `The command is ${bytes} bytes long, ${MAX_COMMAND_BYTES} are allowed; write a file and run it.\n`,
  );
}

async function start(
  request: CommandRequest,
  features: BubblewrapFeatures,
  owner: Owner | null,
): Promise<NamespaceTree> {
  const pipes = await openOutputPipes();
  const opened: number[] = [];
  try {
    const mounts = openMounts(request, features, opened);
    const child = spawn(
      features.program,
      bubblewrapArguments({
        command: request.command,
        limits: request.limits,
        mounts,
        env: request.env ?? {},
        disableUserNamespaces: features.disableUserNamespaces,
      }),
      { stdio: ['ignore', ...pipes.writers, 'pipe', 'pipe', 'pipe', ...opened], env: {}, cwd: '/', ...(owner ?? {}) },
    );
    // 'pipe' at these positions always makes streams, for a spawn that fails too.
    const info = child.stdio[FD.info] as Readable;
    const mark = child.stdio[FD.started] as Readable;
    const passwd = child.stdio[FD.passwd] as Writable;
    passwd.on('error', () => undefined); // bwrap ended before reading it: its exit tells why.
    passwd.end(PASSWD);
    const { stdout, stderr } = pipes;
    return new NamespaceTree({ child, stdout, stderr, info, mark, workspace: request.workspace });
  } catch (error) {
    pipes.stdout.destroy();
    pipes.stderr.destroy();
    throw error;
  } finally {
    pipes.closeWriters();
    for (const fd of opened) fs.closeSync(fd);
  }
}

/** Opens what is mounted, as the engine: the unprivileged bwrap could not walk to it. Appends to `opened`. */
function openMounts(request: CommandRequest, features: BubblewrapFeatures, opened: number[]): Mount[] {
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fs.constants;
  const open = (path: string, flags: number): Mount['source'] => {
    if (!features.bindFd) return { path };
    try {
      opened.push(fs.openSync(path, flags));
    } catch (error) {
      throw new MassError('infrastructure', `The sandbox cannot mount ${path}; check that it exists.`, {
        cause: error,
      });
    }
    return { fd: FD.firstMount + opened.length - 1 };
  };
  const readOnly = Object.entries(request.readOnlyMounts ?? {}).map(([path, target]) => ({
    source: open(path, O_RDONLY),
    target,
    writable: false,
  }));
  const workspace = open(request.workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  return [...readOnly, { source: workspace, target: INSIDE.workspace, writable: true }];
}

const neverStarted = (stderr: string, cause?: unknown): MassError =>
  new MassError(
    'infrastructure',
    `The sandbox did not start (${stderr.trim().slice(-500) || 'no reason given'}); run \`mass doctor\`.`,
    {
      cause,
    },
  );
