import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import { type BubblewrapFeatures, createBubblewrapSandbox } from './bubblewrap.ts';
import { createHostSandbox } from './host.ts';
import type { Sandbox, SandboxLimits } from './sandbox.ts';

/** Whether model-written commands can be confined here, and if not, why and what to type. */
export type SandboxDetection =
  | { readonly available: true; readonly version: string; readonly features: BubblewrapFeatures }
  | { readonly available: false; readonly version: string | null; readonly reason: string; readonly remedy: string };

const PROBE_LIMITS: SandboxLimits = { memoryMiB: 256, processes: 16, fileMiB: 1, diskMiB: 16, cpuSeconds: 5 };

/** Finds bubblewrap and proves it by running one command in a real sandbox. About 50 ms. */
export async function detectSandbox(searchPath = process.env.PATH ?? ''): Promise<SandboxDetection> {
  if (process.platform !== 'linux')
    return unavailable(
      null,
      `There is no sandbox for ${process.platform}`,
      'run the engine on Linux (on Windows: in WSL2)',
    );
  const program = findProgram('bwrap', searchPath);
  if (!program) return unavailable(null, 'bubblewrap is not installed', installCommand());
  let version: string | null = null;
  try {
    const run = promisify(execFile);
    version = (await run(program, ['--version'])).stdout.trim().replace(/^bubblewrap /, '');
    const help = (await run(program, ['--help'])).stdout;
    const features = {
      program,
      disableUserNamespaces: help.includes('--disable-userns'),
    };
    await probe(features);
    return { available: true, version, features };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return unavailable(version, reason.replace(/\.$/, ''), remedyFor());
  }
}

const unavailable = (version: string | null, reason: string, remedy: string): SandboxDetection => ({
  available: false,
  version,
  reason,
  remedy,
});

/**
 * The sandbox of a configuration. Without bubblewrap it refuses with `prerequisite`: running model-written commands
 * unprotected is only ever a person's explicit choice (`sandbox.mode: "host"`), and is said at every start.
 */
export async function createSandbox(mode: Sandbox['mode'], logger: Logger): Promise<Sandbox> {
  if (mode === 'host') {
    logger.log('warn', 'SANDBOX OFF: model-written commands run on this machine unprotected, as you, with your files.');
    return createHostSandbox();
  }
  const found = await detectSandbox();
  if (found.available) return createBubblewrapSandbox(found.features);
  throw new MassError('prerequisite', `No sandbox: ${found.reason}; ${found.remedy}.`, {
    details: { reason: found.reason, remedy: found.remedy },
  });
}

async function probe(features: BubblewrapFeatures): Promise<void> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'mass-sandbox-'));
  try {
    const sandbox = createBubblewrapSandbox(features);
    const workspace = path.join(folder, 'workspace');
    await sandbox.createWorkspace(workspace);
    const result = await sandbox.run({
      command: 'touch probe && test ! -w /usr',
      workspace,
      limits: PROBE_LIMITS,
      wallSeconds: 10,
      outputBytes: 2000,
    });
    if (result.exitCode !== 0)
      throw new MassError(
        'prerequisite',
        `A probe command failed in the sandbox (${result.stderr.trim() || result.limit}).`,
      );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function findProgram(name: string, searchPath: string): string | null {
  for (const folder of searchPath.split(path.delimiter)) {
    if (!path.isAbsolute(folder)) continue;
    const file = path.join(folder, name);
    try {
      fs.accessSync(file, fs.constants.X_OK);
      return file;
    } catch {
      // Not here: the next folder.
    }
  }
  return null;
}

/** The command that installs bubblewrap here, by the ids of os-release(5). */
export function installCommand(osRelease = readText('/etc/os-release'), isRoot = process.getuid?.() === 0): string {
  const ids = [...osRelease.matchAll(/^ID(?:_LIKE)?="?([^"\n]*)"?$/gm)].flatMap((match) => (match[1] ?? '').split(' '));
  const installers: [string[], string][] = [
    [['debian', 'ubuntu'], 'apt-get install -y bubblewrap'],
    [['fedora', 'rhel', 'centos'], 'dnf install -y bubblewrap'],
    [['arch'], 'pacman -S --noconfirm bubblewrap'],
    [['suse', 'opensuse'], 'zypper install -y bubblewrap'],
    [['alpine'], 'apk add bubblewrap bash'],
  ];
  const command = installers.find(([names]) => names.some((name) => ids.includes(name)))?.[1];
  return command
    ? `run \`${isRoot ? '' : 'sudo '}${command}\``
    : 'install the package "bubblewrap" of your distribution';
}

/** Kernel settings that forbid user namespaces, each with the command that allows them. */
function remedyFor(): string {
  const settings: [string, string, string][] = [
    ['/proc/sys/kernel/unprivileged_userns_clone', '0', 'kernel.unprivileged_userns_clone=1'],
    ['/proc/sys/user/max_user_namespaces', '0', 'user.max_user_namespaces=15000'],
    ['/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '1', 'kernel.apparmor_restrict_unprivileged_userns=0'],
  ];
  for (const [file, forbidding, setting] of settings)
    if (readText(file).trim() === forbidding) return `run \`sudo sysctl -w ${setting}\``;
  return 'if this is a container, start it so that user namespaces are allowed (docker: --security-opt seccomp=unconfined); else update bubblewrap';
}

function readText(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    return ''; // A setting this kernel does not have forbids nothing.
  }
}
