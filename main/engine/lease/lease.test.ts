import { setImmediate as tick } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Endpoint } from '../endpoints/endpoint.ts';
import { createDeviceLease } from './lease.ts';
import { memoryReleased } from './memory-released.ts';

const l0 = { key: 'L0', label: 'serve L0' };
const l1 = { key: 'L1', label: 'serve L1' };

function leaseWithLog(failing: string[] = []) {
  const log: string[] = [];
  const lease = createDeviceLease(async (target: typeof l0) => {
    await tick();
    if (failing.includes(target.key)) throw new Error(`${target.key} does not fit`);
    log.push(`start ${target.key}`);
    return {
      endpoints: {
        open: (owner: string) => {
          log.push(`open ${owner}`);
          return Promise.resolve({ close: () => Promise.resolve() } as Endpoint & { close(): Promise<void> });
        },
      },
      dispose: async () => {
        await tick();
        log.push(`stop ${target.key}`);
      },
    };
  });
  return { lease, log };
}

describe('device lease', () => {
  it('shares one serving among owners of the same target', async () => {
    const { lease, log } = leaseWithLog();
    const [a, b] = await Promise.all([lease.endpointsOf(l0).open('a'), lease.endpointsOf(l0).open('b')]);
    expect(lease.holder()).toBe('serve L0');
    await Promise.all([a.close(), b.close()]);
    await lease.dispose();
    expect(log).toEqual(['start L0', 'open a', 'open b', 'stop L0']);
    expect(lease.holder()).toBeNull();
  });

  it('trains only after serving has ended and serves again after it', async () => {
    const { lease, log } = leaseWithLog();
    const a = await lease.endpointsOf(l0).open('a');
    const training = lease.exclusive('train', async () => {
      expect(lease.holder()).toBe('train');
      log.push('train');
    });
    const later = lease.endpointsOf(l0).open('b');
    await tick();
    expect(log).toEqual(['start L0', 'open a']);
    await a.close();
    await training;
    await (await later).close();
    expect(log).toEqual(['start L0', 'open a', 'stop L0', 'train', 'start L0', 'open b']);
  });

  it('waits with another generation until the first is no longer used', async () => {
    const { lease, log } = leaseWithLog();
    const a = await lease.endpointsOf(l0).open('a');
    const b = lease.endpointsOf(l1).open('b');
    await a.close();
    await a.close(); // closing twice gives the device back once
    await (await b).close();
    expect(log).toEqual(['start L0', 'open a', 'stop L0', 'start L1', 'open b']);
  });

  it('reports a model that cannot be served to who asked for it, and serves the next', async () => {
    const { lease } = leaseWithLog(['L1']);
    await expect(lease.prepare(l1)).rejects.toThrow('L1 does not fit');
    await lease.prepare(l0);
    expect(lease.holder()).toBe('serve L0');
  });

  it('gives the device back when exclusive work fails', async () => {
    const { lease } = leaseWithLog();
    await expect(lease.exclusive('train', () => Promise.reject(new Error('diverged')))).rejects.toThrow('diverged');
    expect(lease.holder()).toBeNull();
    await lease.prepare(l0);
  });

  it('keeps serving on release while somebody uses it', async () => {
    const { lease, log } = leaseWithLog();
    const a = await lease.endpointsOf(l0).open('a');
    await lease.release();
    expect(lease.holder()).toBe('serve L0');
    await a.close();
    await lease.release();
    expect(log.at(-1)).toBe('stop L0');
  });

  it('rejects who waits when the engine ends', async () => {
    const { lease } = leaseWithLog();
    const a = await lease.endpointsOf(l0).open('a');
    const waiting = lease.exclusive('train', () => Promise.resolve());
    const rejected = expect(waiting).rejects.toThrow('stopping');
    await lease.dispose();
    await rejected;
    await a.close();
    await expect(lease.prepare(l0)).rejects.toThrow('stopping');
  });
});

describe('memoryReleased', () => {
  it('waits for the process, then for the GPU', async () => {
    const seen: string[] = [];
    const alive = [true, false, false];
    const holders = [[7, 42], [7]];
    await memoryReleased(42, {
      everyMs: 1,
      probe: {
        alive: () => {
          seen.push('alive');
          return alive.shift() ?? false;
        },
        gpuHolders: () => {
          seen.push('gpu');
          return Promise.resolve(holders.shift() ?? []);
        },
      },
    });
    expect(seen).toEqual(['alive', 'alive', 'gpu', 'alive', 'gpu']);
  });

  it('names the process whose memory is not given back', async () => {
    await expect(
      memoryReleased(42, {
        timeoutMs: 5,
        everyMs: 1,
        probe: { alive: () => true, gpuHolders: () => Promise.resolve([]) },
      }),
    ).rejects.toMatchObject({ code: 'infrastructure', message: expect.stringContaining('42') });
  });
});
