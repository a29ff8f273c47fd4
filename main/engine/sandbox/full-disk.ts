import { statfs } from 'node:fs/promises';
import { diskFull, leastFreeBytes } from '../../node/disk-error.ts';
import type { Sandbox } from './sandbox.ts';

/** Errors: MassError `prerequisite` when the disk of `folder` has no room left. */
export async function requireDiskSpace(folder: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= leastFreeBytes) return;
  throw diskFull({ cause: new Error(`${bavail * bsize} bytes are free at ${folder}.`) });
}

/**
 * The same sandbox, whose commands fail as the machine's trouble when the disk is full at their end: what a model does
 * on a full disk is not evidence about the model.
 */
export function refusingFullDisk(sandbox: Sandbox): Sandbox {
  return {
    mode: sandbox.mode,
    owner: sandbox.owner,
    createWorkspace: (path) => sandbox.createWorkspace(path),
    run: async (request) => {
      const result = await sandbox.run(request);
      await requireDiskSpace(request.workspace);
      return result;
    },
  };
}
