import { readFile } from 'node:fs/promises';
import { freemem, totalmem } from 'node:os';

export interface RamState {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** RAM that can be had now: what the kernel calls available, and no more than the control group leaves. */
export async function measureRam(): Promise<RamState> {
  const read = async (path: string): Promise<string> => {
    try {
      return await readFile(path, 'utf8');
    } catch {
      return ''; // Absent on other systems and other cgroup versions: then it sets no bound.
    }
  };
  const system = parseMeminfo(await read('/proc/meminfo')) ?? { freeBytes: freemem(), totalBytes: totalmem() };
  const group =
    parseGroup({
      limit: await read('/sys/fs/cgroup/memory.max'),
      used: await read('/sys/fs/cgroup/memory.current'),
      stat: await read('/sys/fs/cgroup/memory.stat'),
      cacheKey: 'inactive_file',
    }) ??
    parseGroup({
      limit: await read('/sys/fs/cgroup/memory/memory.limit_in_bytes'),
      used: await read('/sys/fs/cgroup/memory/memory.usage_in_bytes'),
      stat: await read('/sys/fs/cgroup/memory/memory.stat'),
      cacheKey: 'total_inactive_file',
    });
  if (group === null) return system;
  return {
    freeBytes: Math.min(system.freeBytes, group.freeBytes),
    totalBytes: Math.min(system.totalBytes, group.totalBytes),
  };
}

/** `MemAvailable` and `MemTotal` of /proc/meminfo (kB there); null when they are not in it. */
export function parseMeminfo(text: string): RamState | null {
  const kilobytes = (key: string): number | null => {
    const found = new RegExp(`^${key}:\\s+(\\d+) kB$`, 'm').exec(text);
    return found?.[1] === undefined ? null : Number(found[1]) * 1024;
  };
  const freeBytes = kilobytes('MemAvailable');
  const totalBytes = kilobytes('MemTotal');
  return freeBytes === null || totalBytes === null ? null : { freeBytes, totalBytes };
}

/** A control group's limit and what is left of it; inactive file cache counts as free, the kernel drops it first. Null: no limit. */
export function parseGroup(group: { limit: string; used: string; stat: string; cacheKey: string }): RamState | null {
  const totalBytes = Number.parseInt(group.limit, 10);
  const used = Number.parseInt(group.used, 10);
  // "max", an absent file, or version 1's "no limit", a number near 2^63.
  if (!Number.isFinite(totalBytes) || !Number.isFinite(used) || totalBytes > 2 ** 60) return null;
  const cache = new RegExp(`^${group.cacheKey} (\\d+)$`, 'm').exec(group.stat);
  return { totalBytes, freeBytes: Math.max(0, totalBytes - used + Number(cache?.[1] ?? 0)) };
}
