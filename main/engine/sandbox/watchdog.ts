import { CpuMeter, type TreeSample } from './process-tree.ts';
import type { CommandResult, SandboxLimits } from './sandbox.ts';

export type Limit = NonNullable<CommandResult['limit']>;

/** What a watchdog may look at. Every probe returns null when the tree is already gone. */
export interface TreeProbes {
  /** All live processes of the command. */
  readonly sample: () => TreeSample | null;
  /** Exact memory in bytes, asked for only when `sample` is above the limit. */
  readonly exactMemoryBytes: (sample: TreeSample) => number;
  /** Bytes held by the private in-memory file systems. */
  readonly temporaryBytes: () => number;
  /** Bytes of the workspace, measured up to a little above `stopAbove`. */
  readonly diskBytes: (stopAbove: number, sample: TreeSample | null) => Promise<number>;
}

const TREE_INTERVAL_MS = 100;
const DISK_INTERVAL_MS = 500;
// A measurement may take at most 1/DUTY of the event loop: with hundreds of processes or files it becomes rarer.
const DUTY = 20;
const MIB = 1024 * 1024;

/**
 * Watches what rlimits cannot express: memory, CPU and tasks of a whole tree, and the size of a workspace. Calls
 * `exceeded` once at the first limit passed; the caller ends the tree.
 */
export class Watchdog {
  readonly #limits: SandboxLimits;
  readonly #probes: TreeProbes;
  readonly #exceeded: (limit: Limit) => void;
  readonly #cpu = new CpuMeter();
  #treeTimer: NodeJS.Timeout | undefined;
  #diskTimer: NodeJS.Timeout | undefined;
  #stopped = false;
  #peakTasks = 0;

  constructor(options: { limits: SandboxLimits; probes: TreeProbes; exceeded: (limit: Limit) => void }) {
    this.#limits = options.limits;
    this.#probes = options.probes;
    this.#exceeded = options.exceeded;
  }

  /** Whether the tree was seen at its limit of tasks, where fork fails. */
  get reachedTaskLimit(): boolean {
    return this.#peakTasks >= this.#limits.processes;
  }

  start(): void {
    this.#watchTree();
    this.#diskTimer = setTimeout(() => this.#watchDisk(), DISK_INTERVAL_MS);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#treeTimer);
    clearTimeout(this.#diskTimer);
  }

  #report(limit: Limit): void {
    if (this.#stopped) return;
    this.stop();
    this.#exceeded(limit);
  }

  #watchTree(): void {
    const started = performance.now();
    const sample = this.#probes.sample();
    if (sample) {
      this.#peakTasks = Math.max(this.#peakTasks, sample.tasks);
      if (this.#cpu.add(sample) > this.#limits.cpuSeconds) this.#report('cpu');
      else if (this.#aboveMemory(sample)) this.#report('memory');
    }
    if (this.#stopped) return;
    const spent = performance.now() - started;
    this.#treeTimer = setTimeout(() => this.#watchTree(), Math.max(TREE_INTERVAL_MS, spent * DUTY));
  }

  #aboveMemory(sample: TreeSample): boolean {
    const limit = this.#limits.memoryMiB * MIB;
    const temporary = this.#probes.temporaryBytes();
    return sample.rssBytes + temporary > limit && this.#probes.exactMemoryBytes(sample) + temporary > limit;
  }

  async #watchDisk(): Promise<void> {
    const started = performance.now();
    const limit = this.#limits.diskMiB * MIB;
    let bytes = 0;
    try {
      bytes = await this.#probes.diskBytes(limit, this.#probes.sample());
    } catch {
      // The folder changes under the walk (a loop of renames, say). The measure after the command is the one that counts.
    }
    if (bytes > limit) this.#report('disk');
    if (this.#stopped) return;
    const spent = performance.now() - started;
    this.#diskTimer = setTimeout(() => this.#watchDisk(), Math.max(DISK_INTERVAL_MS, spent * DUTY));
  }
}
