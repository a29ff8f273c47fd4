import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MassError } from '../../common/base/errors.ts';

const run = promisify(execFile);

export interface ReleaseProbe {
  /** The process still exists. */
  readonly alive: (pid: number) => boolean;
  /** Process ids that hold memory of a GPU; empty where no tool can tell. */
  readonly gpuHolders: () => Promise<readonly number[]>;
}

const machineProbe: ReleaseProbe = {
  alive: (pid) => {
    try {
      process.kill(pid, 0);
      return true;
    } catch {
      return false;
    }
  },
  gpuHolders: async () => {
    try {
      const { stdout } = await run('nvidia-smi', ['--query-compute-apps=pid', '--format=csv,noheader'], {
        timeout: 10_000,
      });
      return stdout.split('\n').map(Number).filter(Number.isInteger);
    } catch {
      return []; // no NVIDIA tool: a process that is gone holds nothing
    }
  },
};

/**
 * Resolves when a process is gone and no GPU lists it any more: drivers free memory a moment after the exit, and a
 * trainer that measures too early refuses. Throws `infrastructure` after `timeoutMs`.
 */
export async function memoryReleased(
  pid: number,
  {
    timeoutMs = 60_000,
    everyMs = 100,
    probe = machineProbe,
  }: { timeoutMs?: number; everyMs?: number; probe?: ReleaseProbe } = {},
): Promise<void> {
  if (pid === 0) return;
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    if (!probe.alive(pid) && !(await probe.gpuHolders()).includes(pid)) return;
    if (Date.now() > deadline)
      throw new MassError(
        'infrastructure',
        `The process ${pid} was ended, but its memory is still held; end it by hand, then run again.`,
        { details: { pid } },
      );
    await sleep(everyMs);
  }
}
