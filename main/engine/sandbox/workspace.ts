import { chmod, chown, lchown, lstat, mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { diskError } from '../../node/disk-error.ts';
import type { Owner } from './sandbox.ts';

/** Makes an empty folder that only its owner can enter. Fails with `conflict` when it exists. */
export async function makeWorkspace(folder: string, owner: Owner | null): Promise<void> {
  if (!path.isAbsolute(folder)) throw new MassError('internal', `A workspace path must be absolute: ${folder}.`);
  await mkdir(path.dirname(folder), { recursive: true, mode: 0o700 });
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST')
      throw new MassError('conflict', `The workspace ${folder} exists already; choose a new path.`, { cause: error });
    const full = diskError(error);
    if (full) throw full;
    throw new MassError(
      'infrastructure',
      `The workspace ${folder} cannot be made; check the disk and its permissions.`,
      {
        cause: error,
      },
    );
  }
  await chmod(folder, 0o700);
  if (owner) await chown(folder, owner.uid, owner.gid);
}

/**
 * Gives files that the engine put into a workspace (task data, say) to the identity that commands run as. Symlinks are
 * changed themselves, never followed. Call it while no command runs in the workspace.
 */
export async function giveToOwner(file: string, owner: Owner | null): Promise<void> {
  if (!owner) return;
  await lchown(file, owner.uid, owner.gid);
  if (!(await lstat(file)).isDirectory()) return;
  for (const name of await readdir(file)) await giveToOwner(path.join(file, name), owner);
}
