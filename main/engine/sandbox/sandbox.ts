import type { z } from 'zod';
import type { SandboxConfig } from '../../common/domain/config.ts';

export type SandboxLimits = Omit<z.infer<typeof SandboxConfig>, 'mode'>;

export interface CommandRequest {
  /** Shell text, run as `/bin/bash -c`. Untrusted. */
  readonly command: string;
  /** Absolute path of the workspace on the host; the only writable place besides a private /tmp. */
  readonly workspace: string;
  readonly limits: SandboxLimits;
  /** Wall-clock limit of this command. */
  readonly wallSeconds: number;
  /** Largest number of bytes kept of stdout and of stderr each; the rest is drained and counted. */
  readonly outputBytes: number;
  /** Extra read-only mounts, host path -> path inside (e.g. the locked Python environment). */
  readonly readOnlyMounts?: Readonly<Record<string, string>>;
  /** Added to a fixed, secret-free environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** User and group id on the host. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** How a command ended. `limit` is set when a limit ended it; `exitCode` is null when a signal did. */
export interface CommandResult {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly limit: 'wall' | 'cpu' | 'memory' | 'processes' | 'file' | 'disk' | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  readonly durationMs: number;
  readonly cancelled: boolean;
}

/**
 * Runs model-written commands. A failing command is a result, never an exception; a sandbox that cannot start throws
 * MassError `prerequisite` or `infrastructure`. When `run` settles, no process of the command is left.
 */
export interface Sandbox {
  readonly mode: 'bubblewrap' | 'host';
  /** Who commands run as, and so who must own every file put into a workspace; null when that is the engine itself. */
  readonly owner: Owner | null;
  run(request: CommandRequest): Promise<CommandResult>;
  /** Makes an empty workspace owned by the identity commands run as. Fails when it exists. */
  createWorkspace(path: string): Promise<void>;
}
