import fs from 'node:fs';
import type { SandboxLimits } from './sandbox.ts';

/** Where things lie inside the sandbox. */
export const INSIDE = {
  workspace: '/workspace',
  home: '/tmp/home',
  temporary: '/tmp',
  sharedMemory: '/dev/shm',
} as const;
/** Inside, commands are always this user, whoever that is outside. */
const INSIDE_ID = '1000';
/** Content of /etc/passwd inside, so that the user has a name and a home. */
export const PASSWD = `agent:x:${INSIDE_ID}:${INSIDE_ID}::${INSIDE.home}:/bin/bash\n`;
const MIB = 1024 * 1024;

/** Child file descriptors beyond stdio. */
export const FD = { info: 3, started: 4, passwd: 5 } as const;

export interface Mount {
  readonly source: string;
  readonly target: string;
  readonly writable: boolean;
}

/** Files of /etc that programs need and that hold no secret. */
const ETC_PATHS = ['ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'alternatives', 'localtime', 'fonts', 'mime.types'];
const SYSTEM_FOLDERS = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];

/**
 * Runs before the command: sets the rlimits, closes descriptors inherited from whatever started the engine, and says
 * that the sandbox stands. The untrusted command is an argument and never part of this text.
 * $1 command, $2 tasks, $3 file KiB, $4 CPU seconds, $5 data KiB, $6 descriptor that takes the mark.
 */
const LAUNCHER = `
ulimit -c 0 && ulimit -n 1024 && ulimit -u "$2" && ulimit -f "$3" && ulimit -d "$5" &&
  ulimit -St "$4" && ulimit -Ht "$(($4 + 2))" || exit 125
mark=$6
for path in /proc/self/fd/*; do
  fd=\${path##*/}
  if (( fd > 2 && fd != mark )); then exec {fd}>&-; fi
done
mkdir -p "$HOME" || exit 125
printf s >&"$mark" && exec {mark}>&- || exit 125
exec /bin/bash -c "$1"
`;

/** Arguments after `bwrap`. Order matters: a later mount covers an earlier one, read-only remounts come last. */
export function bubblewrapArguments(options: {
  command: string;
  limits: SandboxLimits;
  mounts: readonly Mount[];
  env: Readonly<Record<string, string>>;
  disableUserNamespaces: boolean;
}): string[] {
  const { limits } = options;
  return [
    ...['--unshare-user', '--unshare-pid', '--unshare-net', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    ...(options.disableUserNamespaces ? ['--disable-userns'] : []),
    ...['--uid', INSIDE_ID, '--gid', INSIDE_ID, '--hostname', 'sandbox', '--cap-drop', 'ALL'],
    ...['--new-session', '--die-with-parent', '--info-fd', String(FD.info)],
    ...systemMounts(),
    ...['--perms', '0444', '--ro-bind-data', String(FD.passwd), '/etc/passwd'],
    // bwrap's root and /dev are writable tmpfs of half the machine's memory each unless they are made read-only.
    ...['--proc', '/proc', '--dev', '/dev'],
    ...temporary(INSIDE.sharedMemory, limits),
    ...['--remount-ro', '/dev'],
    ...temporary(INSIDE.temporary, limits),
    ...options.mounts.flatMap(mountArguments),
    ...['--remount-ro', '/', '--chdir', INSIDE.workspace],
    ...environmentArguments(options.env),
    ...['--', '/bin/bash', '--noprofile', '--norc', '-c', LAUNCHER, 'launcher', options.command],
    ...[limits.processes, limits.fileMiB * 1024, Math.ceil(limits.cpuSeconds), dataKiB(limits), FD.started].map(String),
  ];
}

/**
 * RLIMIT_DATA (private writable memory of one process) stops a single hog between two looks of the watchdog. Twice the
 * limit, as it counts memory that is reserved and never touched. RLIMIT_AS would break Node, which reserves far more.
 */
const dataKiB = (limits: SandboxLimits): number => limits.memoryMiB * 2 * 1024;

/** Files in memory count as memory: each of the two file systems takes half of the limit at most. */
const temporary = (target: string, limits: SandboxLimits): string[] => [
  ...['--size', String(Math.floor((limits.memoryMiB * MIB) / 2)), '--perms', '1777', '--tmpfs', target],
];

const mountArguments = ({ source, target, writable }: Mount): string[] => [
  writable ? '--bind' : '--ro-bind',
  source,
  target,
];

/** /usr and the links or folders beside it, read-only, as this distribution lays them out. */
function systemMounts(): string[] {
  const mounts = ['--ro-bind', '/usr', '/usr', '--perms', '0755', '--dir', '/etc'];
  for (const name of SYSTEM_FOLDERS) {
    const stat = fs.lstatSync(`/${name}`, { throwIfNoEntry: false });
    if (stat?.isSymbolicLink()) mounts.push('--symlink', fs.readlinkSync(`/${name}`), `/${name}`);
    else if (stat?.isDirectory()) mounts.push('--ro-bind', `/${name}`, `/${name}`);
  }
  for (const name of ETC_PATHS) mounts.push('--ro-bind-try', `/etc/${name}`, `/etc/${name}`);
  return mounts;
}

function environmentArguments(env: Readonly<Record<string, string>>): string[] {
  const fixed = {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: INSIDE.home,
    TMPDIR: INSIDE.temporary,
    LANG: 'C.UTF-8',
    USER: 'agent',
    SHELL: '/bin/bash',
    TERM: 'dumb',
  };
  return ['--clearenv', ...Object.entries({ ...fixed, ...env }).flatMap(([name, value]) => ['--setenv', name, value])];
}
