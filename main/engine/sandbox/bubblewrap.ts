import { spawn } from 'node:child_process';
import fs from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { MassError } from '../../common/base/errors.ts';
import { bubblewrapArguments, FD, INSIDE, PASSWD } from './bubblewrap-arguments.ts';
import { NamespaceTree } from './namespace-tree.ts';
import { openOutputPipes } from './output-pipes.ts';
import { belowServing } from './priority.ts';
import type { CommandRequest, CommandResult, Owner, Sandbox } from './sandbox.ts';
import { stage } from './staging.ts';
import { notRun, supervise } from './supervise.ts';
import { makeWorkspace } from './workspace.ts';

/** What the installed bubblewrap can do; found by `detectSandbox`. */
export interface BubblewrapFeatures {
  /** Absolute path of the program. */
  readonly program: string;
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
  const { tree, dispose } = await start(request, features, owner);
  try {
    const result = await supervise(tree, request);
    if (!tree.hasStarted && !result.cancelled && result.limit === null) throw neverStarted(result.stderr);
    return result;
  } catch (error) {
    throw error instanceof MassError ? error : neverStarted(String(error), error);
  } finally {
    tree.close();
    await dispose();
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

/** A started sandbox and what to remove from the host after it. */
interface Started {
  readonly tree: NamespaceTree;
  readonly dispose: () => Promise<void>;
}

async function start(request: CommandRequest, features: BubblewrapFeatures, owner: Owner | null): Promise<Started> {
  const readOnly = Object.entries(request.readOnlyMounts ?? {});
  const sources = [...readOnly.map(([source]) => source), request.workspace];
  requireFolders(sources);
  const staged = owner ? await stage(sources, owner) : null;
  const dispose = async (): Promise<void> => staged?.dispose();
  const targets = [...readOnly.map(([, target]) => target), INSIDE.workspace];
  const mounts = targets.map((target, index) => ({
    source: (staged?.paths ?? sources)[index] as string,
    target,
    writable: target === INSIDE.workspace,
  }));
  const { command, limits, env = {} } = request;
  const { program, disableUserNamespaces } = features;
  const inner = bubblewrapArguments({ command, limits, mounts, env, disableUserNamespaces });
  const pipes = await openOutputPipes();
  try {
    const below = belowServing(staged?.program ?? program, staged ? [...staged.prefix, program, ...inner] : inner);
    const child = spawn(below.program, below.args, {
      stdio: ['ignore', ...pipes.writers, 'pipe', 'pipe', 'pipe'],
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      cwd: '/',
    });
    // 'pipe' at these positions always makes streams, for a spawn that fails too.
    const stdio = child.stdio as readonly unknown[];
    const passwd = stdio[FD.passwd] as Writable;
    passwd.on('error', () => undefined); // bwrap ended before reading it: its exit tells why.
    passwd.end(PASSWD);
    const { stdout, stderr } = pipes;
    const info = stdio[FD.info] as Readable;
    const mark = stdio[FD.started] as Readable;
    return { tree: new NamespaceTree({ child, stdout, stderr, info, mark, workspace: request.workspace }), dispose };
  } catch (error) {
    pipes.stdout.destroy();
    pipes.stderr.destroy();
    await dispose();
    throw error;
  } finally {
    pipes.closeWriters();
  }
}

function requireFolders(folders: readonly string[]): void {
  for (const folder of folders)
    if (!fs.lstatSync(folder, { throwIfNoEntry: false })?.isDirectory())
      throw new MassError('infrastructure', `The sandbox needs the folder ${folder}, which does not exist.`);
}

const neverStarted = (stderr: string, cause?: unknown): MassError =>
  new MassError(
    'infrastructure',
    `The sandbox did not start (${stderr.trim().slice(-500) || 'no reason given'}); run \`mass doctor\`.`,
    {
      cause,
    },
  );
