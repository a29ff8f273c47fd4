import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Owner } from './sandbox.ts';

/**
 * Runs as root in a mount namespace of its own: shows each source under a folder that anybody can enter, then becomes
 * the unprivileged owner for good and turns into bubblewrap. $1 is uid:gid, then pairs of source and target up to "--".
 */
const STAGE = `
id=$1; shift
while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done
shift
exec setpriv --reuid "\${id%:*}" --regid "\${id#*:}" --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
`;

export interface StagedProgram {
  readonly program: string;
  /** Arguments to put before the program to run and its own arguments. */
  readonly prefix: readonly string[];
  /** Where each source is to be found by the program, in the order given. */
  readonly paths: readonly string[];
  readonly dispose: () => Promise<void>;
}

// Not TMPDIR: it may lie where only root can enter.
const STAGES = '/tmp';

/**
 * Lets root start a program as `owner` that must reach folders which only root may enter (a data folder with mode
 * 0700, a Python under /root). bubblewrap itself must be unprivileged: started by root it leaves root's user id, with
 * which limits on processes do not hold, and its descriptor mounts walk the path again, so they do not help.
 */
export async function stage(sources: readonly string[], owner: Owner): Promise<StagedProgram> {
  const folder = await mkdtemp(path.join(STAGES, 'mass-stage-'));
  const paths = sources.map((_, index) => path.join(folder, 'mounts', String(index)));
  await mkdir(path.join(folder, 'mounts'), { mode: 0o755 });
  for (const target of paths) await mkdir(target, { mode: 0o755 });
  await chmod(folder, 0o711);
  return {
    program: 'unshare',
    prefix: [
      ...['--mount', '--propagation', 'private', '--', '/bin/sh', '-c', STAGE, 'stage', `${owner.uid}:${owner.gid}`],
      ...sources.flatMap((source, index) => [source, paths[index] as string]),
      '--',
    ],
    paths,
    // The mounts live in the child's namespace and ended with it; here there are only empty folders.
    dispose: () => rm(folder, { recursive: true, force: true }),
  };
}
