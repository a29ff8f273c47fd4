import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { readEngineFile } from '../../client/connect-engine.ts';
import { projectRoot } from '../../node/project-root.ts';

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs a program to its end. */
export function runProgram(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => {
      out += String(data);
    });
    child.stderr.on('data', (data) => {
      err += String(data);
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, out, err }));
  });
}

/** `mass` over a data folder, with the engine program and environment a test needs. */
export class CommandLine {
  readonly data: string;
  readonly #env: NodeJS.ProcessEnv;

  constructor(data: string, env: NodeJS.ProcessEnv = {}) {
    this.data = data;
    this.#env = env;
  }

  mass(...args: string[]): Promise<Ended> {
    const launch = join(projectRoot, 'main/cli/launch.mjs');
    return runProgram(process.execPath, [launch, ...args, '--data', this.data], { ...process.env, ...this.#env });
  }

  /** Ends the engine and waits until its process is gone. */
  async end(): Promise<void> {
    await this.mass('stop', '--now', '--engine');
    while (readEngineFile(this.data) !== null) await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** An engine program over a scripted model; see main/engine/testing. */
export const scriptedEngine = { MASS_ENGINE_ENTRY: join(projectRoot, 'main/engine/testing/findings-main.ts') };
