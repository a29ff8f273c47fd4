import fs from 'node:fs';

/** One line of /proc/<pid>/stat, the fields limits need. Times in clock ticks (100 a second on Linux), memory in pages. */
export interface ProcessStat {
  readonly pid: number;
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly ownTicks: number;
  readonly reapedTicks: number;
  readonly threads: number;
  readonly startTicks: number;
  readonly rssPages: number;
}

/** A process tree at one moment. */
export interface TreeSample {
  readonly processes: number;
  /** Threads of all processes: what RLIMIT_NPROC counts. */
  readonly tasks: number;
  /** Resident memory; pages shared between processes are counted once per process. */
  readonly rssBytes: number;
  readonly stats: readonly ProcessStat[];
}

// Fixed by the kernel's user interface (USER_HZ) on every architecture Node runs on.
export const TICKS_PER_SECOND = 100;
// RSS is in pages of the machine; 16 and 64 KiB pages exist on arm64, where the smaller guess would under-count.
const PAGE_BYTES = process.arch === 'x64' || process.arch === 'ia32' ? 4096 : pageBytesFromAuxv();

/** AT_PAGESZ (6) of /proc/self/auxv, an array of pairs of native words. */
function pageBytesFromAuxv(): number {
  try {
    const auxv = fs.readFileSync('/proc/self/auxv');
    for (let at = 0; at + 16 <= auxv.length; at += 16)
      if (auxv.readBigUInt64LE(at) === 6n) return Number(auxv.readBigUInt64LE(at + 8));
  } catch {
    // No /proc: there is nothing to sample either.
  }
  return 4096;
}

/** Parses a stat line. The command name may hold spaces and parentheses: fields count from the last ")". */
export function parseProcessStat(line: string): ProcessStat | null {
  const close = line.lastIndexOf(')');
  const pid = Number.parseInt(line, 10);
  if (close < 0 || !Number.isInteger(pid)) return null;
  const fields = line.slice(close + 2).split(' ');
  const state = fields[0];
  const numbers = fields.map(Number);
  // proc_pid_stat(5): field 3 is `state`, so field n of the manual is index n - 3 here.
  const at = (field: number): number => numbers[field - 3] ?? Number.NaN;
  const stat = {
    pid,
    state: state ?? '',
    parent: at(4),
    group: at(5),
    session: at(6),
    ownTicks: at(14) + at(15),
    reapedTicks: at(16) + at(17),
    threads: at(20),
    startTicks: at(22),
    rssPages: at(24),
  };
  return Number.isFinite(stat.rssPages) && Number.isFinite(stat.ownTicks + stat.threads) ? stat : null;
}

/** Reads every process of a procfs mount. `procfs` is a path such as /proc; `keep` narrows to some processes. */
export function sampleTree(procfs: string, keep: (stat: ProcessStat) => boolean = () => true): TreeSample {
  const stats: ProcessStat[] = [];
  for (const name of fs.readdirSync(procfs)) {
    const first = name.charCodeAt(0);
    if (first < 48 || first > 57) continue;
    const stat = readProcessStat(procfs, name);
    if (stat && keep(stat)) stats.push(stat);
  }
  let tasks = 0;
  let pages = 0;
  for (const stat of stats) {
    tasks += stat.threads;
    pages += stat.rssPages;
  }
  return { processes: stats.length, tasks, rssBytes: pages * PAGE_BYTES, stats };
}

export function readProcessStat(procfs: string, pid: number | string): ProcessStat | null {
  try {
    return parseProcessStat(fs.readFileSync(`${procfs}/${pid}/stat`, 'latin1'));
  } catch {
    return null; // It ended between listing and reading.
  }
}

/**
 * Proportional set size of the tree in bytes: shared pages are divided among their users, so forked workers that share
 * a large array are not counted once each. Costs a walk of every mapping: only asked for when RSS is above the limit.
 */
export function proportionalBytes(procfs: string, sample: TreeSample): number {
  let total = 0;
  for (const stat of sample.stats) {
    try {
      const rollup = fs.readFileSync(`${procfs}/${stat.pid}/smaps_rollup`, 'latin1');
      const kib = /^Pss:\s+(\d+) kB/m.exec(rollup)?.[1];
      total += kib === undefined ? stat.rssPages * PAGE_BYTES : Number(kib) * 1024;
    } catch (error) {
      // Ended since (ESRCH, ENOENT) counts nothing; not allowed to read counts its resident pages.
      const code = (error as NodeJS.ErrnoException).code;
      if (code === 'EACCES' || code === 'EPERM') total += stat.rssPages * PAGE_BYTES;
    }
  }
  return total;
}

/**
 * CPU seconds of a tree over its life. Two lower bounds are kept and the larger one is used: live processes with the
 * children they reaped, and every process ever seen with its last own time. The first misses children that were
 * auto-reaped (SIGCHLD ignored), the second those too short-lived for a sample.
 */
export class CpuMeter {
  #lastOwn = new Map<string, number>();
  #endedTicks = 0;
  #seconds = 0;

  add(sample: TreeSample): number {
    const own = new Map<string, number>();
    let live = 0;
    let seen = 0;
    for (const stat of sample.stats) {
      const key = `${stat.pid}:${stat.startTicks}`;
      own.set(key, stat.ownTicks);
      this.#lastOwn.delete(key);
      live += stat.ownTicks + stat.reapedTicks;
      seen += stat.ownTicks;
    }
    for (const ticks of this.#lastOwn.values()) this.#endedTicks += ticks;
    this.#lastOwn = own;
    this.#seconds = Math.max(this.#seconds, live / TICKS_PER_SECOND, (seen + this.#endedTicks) / TICKS_PER_SECOND);
    return this.#seconds;
  }
}
