import { type ChildProcess, fork } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { MassError } from '../../common/base/errors.ts';
import type { LogLevel } from '../../common/base/logger.ts';
import { FromInference, type ToInference } from '../../common/protocol/inference.ts';
import { inferenceEnvironment } from './inference-environment.ts';

export const inferenceEntry = fileURLToPath(new URL('../../inference/main.ts', import.meta.url));

export interface InferenceChildOptions {
  readonly entry: string;
  readonly socketPath: string | null;
  /** whether the model will run on the CPU, see `inferenceEnvironment` */
  readonly cpu: boolean;
  readonly onMessage: (message: FromInference) => void;
  readonly onLog: (level: LogLevel, message: string, fields?: Record<string, unknown>) => void;
}

const keptLogLines = 20;
/** After its exit, how long the rest of what a child had sent may take to arrive. */
const drainMs = 2000;

/** One incarnation of the inference process. */
export class InferenceChild {
  readonly #child: ChildProcess;
  readonly #options: InferenceChildOptions;
  readonly #listeners = new Set<(message: FromInference) => void>();
  readonly #tail: string[] = [];
  #ended = false;
  /** Resolves once the process is gone and everything it had sent was handled. */
  readonly ended: Promise<void>;

  constructor(options: InferenceChildOptions) {
    this.#options = options;
    // Its own process group: it can be killed with all it started, and Ctrl-C in a terminal does not reach it.
    this.#child = fork(options.entry, options.socketPath === null ? [] : [options.socketPath], {
      execPath: process.execPath,
      execArgv: ['--disable-warning=ExperimentalWarning'],
      serialization: 'advanced',
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      env: inferenceEnvironment(process.env, options.cpu),
    });
    this.#child.on('message', (raw) => this.#receive(raw));
    this.#child.on('error', (error) => options.onLog('error', `The inference process: ${error.message}`));
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#print(line));
    }
    this.ended = this.#awaitEnd();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** How it ended and its last log lines, for a person. */
  get epitaph(): string {
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `exit code ${exitCode}` : `signal ${signalCode}`;
    return this.#tail.length === 0 ? how : `${how}; its last lines were:\n${this.#tail.join('\n')}`;
  }

  /** A message to a process that is gone is lost; whoever waits for its effect learns that from `ended`. */
  send(message: ToInference): void {
    if (this.#child.connected) this.#child.send(message, () => undefined);
  }

  /** The first message that `pick` turns into a value. Errors: `ChildEnded`; MassError infrastructure after `timeoutMs`. */
  next<T>(pick: (message: FromInference) => T | undefined, what: string, timeoutMs: number): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const settle = (act: () => void): void => {
        clearTimeout(timer);
        this.#listeners.delete(listener);
        act();
      };
      const listener = (message: FromInference): void => {
        const value = pick(message);
        if (value !== undefined) settle(() => resolve(value));
      };
      const timer = setTimeout(() => {
        const seconds = Math.round(timeoutMs / 1000);
        const text = `The inference process did not ${what} within ${seconds} s.`;
        settle(() => reject(new MassError('infrastructure', text)));
      }, timeoutMs);
      this.#listeners.add(listener);
      void this.ended.then(() => settle(() => reject(new ChildEnded(this.epitaph))));
    });
  }

  /** Ask, wait `graceMs`, kill the group. Never throws. */
  async stop(graceMs: number): Promise<void> {
    this.send({ kind: 'shutdown' });
    const timer = setTimeout(() => this.kill(), graceMs);
    await this.ended;
    clearTimeout(timer);
  }

  kill(): void {
    if (this.#child.pid === undefined || this.#ended) return;
    try {
      process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // The group is gone already: that is what was wanted.
    }
  }

  #receive(raw: unknown): void {
    const parsed = FromInference.safeParse(raw);
    if (!parsed.success) {
      this.#options.onLog('error', 'The inference process sent a message that does not parse.', {
        issue: parsed.error.message,
      });
      return;
    }
    if (parsed.data.kind === 'log') this.#keep(parsed.data.message);
    this.#options.onMessage(parsed.data);
    for (const listener of [...this.#listeners]) listener(parsed.data);
  }

  #print(line: string): void {
    this.#keep(line);
    this.#options.onLog('debug', line);
  }

  #keep(line: string): void {
    this.#tail.push(line.slice(0, 500));
    if (this.#tail.length > keptLogLines) this.#tail.shift();
  }

  /** `exit` may come before the last messages of the channel were read; `disconnect` comes after them. */
  async #awaitEnd(): Promise<void> {
    const child = this.#child;
    const disconnected = new Promise<void>((resolve) => child.once('disconnect', resolve));
    await new Promise<void>((resolve) => {
      child.once('exit', () => resolve());
      // Not started at all: there will be no exit.
      child.once('error', () => child.pid === undefined && resolve());
    });
    let timer: NodeJS.Timeout | undefined;
    const bound = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, drainMs);
    });
    if (child.connected) await Promise.race([disconnected, bound]);
    clearTimeout(timer);
    // What it started must not outlive it.
    this.kill();
    this.#ended = true;
  }
}

/** The process ended while something was awaited of it: a crash, to be restarted. */
export class ChildEnded extends Error {
  constructor(epitaph: string) {
    super(epitaph);
    this.name = 'ChildEnded';
  }
}
