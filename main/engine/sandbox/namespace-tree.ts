import type { ChildProcess } from 'node:child_process';
import fs from 'node:fs';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { INSIDE } from './bubblewrap-arguments.ts';
import { deletedOpenBytes, measureClosedFolders, measureDiskUsage } from './disk-usage.ts';
import { proportionalBytes, readProcessStat, sampleTree, type TreeSample } from './process-tree.ts';
import type { SupervisedTree } from './supervise.ts';
import type { TreeProbes } from './watchdog.ts';

/** What bwrap writes to --info-fd: the host's pid of the namespace's init, and the namespace's inode. */
const Info = z.object({ 'child-pid': z.number().int().positive(), 'pid-namespace': z.number().int().optional() });

export interface NamespaceTreeOptions {
  readonly child: ChildProcess;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** bwrap's --info-fd. */
  readonly info: Readable;
  /** Where the launcher writes one byte when the sandbox stands. */
  readonly mark: Readable;
  readonly workspace: string;
}

/**
 * The processes of one sandbox, seen from the host: they are exactly the pid namespace, whose init is bwrap's child.
 * Killing init kills all of them, and init becomes a zombie only after the last one is gone (pid_namespaces(7)).
 */
export class NamespaceTree implements SupervisedTree {
  readonly started: Promise<void>;
  readonly probes: TreeProbes;
  readonly child: ChildProcess;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly #workspace: string;
  readonly #device: number;
  #init: { pid: number; namespace: number | undefined } | null = null;
  #infoEnded = false;
  #killWanted = false;
  #hasStarted = false;
  #procfs: number | null = null;

  constructor(options: NamespaceTreeOptions) {
    this.child = options.child;
    this.stdout = options.stdout;
    this.stderr = options.stderr;
    this.#workspace = options.workspace;
    this.#device = fs.statSync(options.workspace).dev;
    this.#readInfo(options.info);
    this.started = new Promise((resolve) => {
      options.mark.once('data', () => {
        this.#hasStarted = true;
        this.#openProcfs();
        resolve();
      });
      options.mark.once('close', () => resolve());
      options.mark.once('error', () => resolve());
    });
    this.probes = {
      sample: () => this.#sample(),
      exactMemoryBytes: (sample) => (this.#procfs === null ? 0 : proportionalBytes(this.#path(), sample)),
      temporaryBytes: () => this.#temporaryBytes(),
      diskBytes: (stopAbove, sample) => this.#diskBytes(stopAbove, sample),
    };
  }

  /** Whether the command itself was reached. */
  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  readonly finalDiskBytes = async (stopAbove: number): Promise<number> =>
    (await measureClosedFolders(this.#workspace, stopAbove)).bytes;

  readonly kill = (): void => {
    this.#killWanted = true;
    if (this.#init) {
      if (!this.#initGone()) kill(this.#init.pid);
    } else if (this.#infoEnded) this.child.kill('SIGKILL');
    // Otherwise bwrap is about to name its child: killing bwrap alone now could leave that child behind.
  };

  readonly gone = (): boolean => this.#init === null || this.#initGone();

  close(): void {
    if (this.#procfs !== null) fs.closeSync(this.#procfs);
    this.#procfs = null;
  }

  #readInfo(info: Readable): void {
    let text = '';
    info.on('data', (chunk: Buffer) => {
      text += chunk.toString('utf8');
      if (this.#init || !text.includes('}')) return;
      const parsed = Info.parse(JSON.parse(text));
      this.#init = { pid: parsed['child-pid'], namespace: parsed['pid-namespace'] };
      if (this.#killWanted) this.kill();
    });
    const onEnd = (): void => {
      this.#infoEnded = true;
      if (this.#killWanted) this.kill();
    };
    info.once('close', onEnd);
    info.once('error', onEnd);
  }

  #initGone(): boolean {
    if (!this.#init) return true;
    const { pid, namespace } = this.#init;
    const stat = readProcessStat('/proc', pid);
    if (!stat || stat.state === 'Z' || stat.state === 'X') return true;
    // A number that was given to another process since: its namespace differs (one we cannot read is not ours either).
    if (namespace === undefined) return false;
    try {
      return fs.readlinkSync(`/proc/${pid}/ns/pid`) !== `pid:[${namespace}]`;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code !== 'EACCES';
    }
  }

  /** Holds the sandbox's own /proc open: the path through init's pid would not survive init's death safely. */
  #openProcfs(): void {
    if (!this.#init || this.#initGone()) return;
    try {
      this.#procfs = fs.openSync(`/proc/${this.#init.pid}/root/proc`, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    } catch {
      // The command has ended already. If it has not, memory stays bounded by RLIMIT_DATA and time by the wall clock.
    }
  }

  #path(): string {
    return `/proc/self/fd/${this.#procfs}`;
  }

  #sample(): TreeSample | null {
    if (this.#procfs === null) return null;
    try {
      return sampleTree(this.#path());
    } catch {
      return null; // The namespace ended.
    }
  }

  #temporaryBytes(): number {
    if (this.#procfs === null) return 0;
    let bytes = 0;
    for (const folder of [INSIDE.temporary, INSIDE.sharedMemory]) {
      try {
        const stat = fs.statfsSync(`${this.#path()}/1/root${folder}`);
        bytes += (stat.blocks - stat.bfree) * stat.bsize;
      } catch {
        // The namespace ended.
      }
    }
    return bytes;
  }

  async #diskBytes(stopAbove: number, sample: TreeSample | null): Promise<number> {
    const { bytes } = await measureDiskUsage(this.#workspace, stopAbove);
    if (!sample || this.#procfs === null) return bytes;
    const pids = sample.stats.map((stat) => stat.pid);
    return bytes + deletedOpenBytes(this.#path(), pids, this.#device);
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
