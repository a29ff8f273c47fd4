import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { type Deferred, deferred } from '../../common/base/deferred.ts';
import { MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import { FromTrainer, type ToTrainer, trainerProtocol } from '../../common/protocol/trainer.ts';
import { LineSplitter } from './line-splitter.ts';

export interface SidecarCommand {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

export interface SidecarOptions {
  readonly command: SidecarCommand;
  readonly logger: Logger;
  /** longest line it may send, in bytes */
  readonly lineBytes: number;
}

/** Events but for `log`, which goes to the logger. */
export type SidecarEvent = Exclude<FromTrainer, { kind: 'log' }>;

const keptLogLines = 20;
/** After its exit, how long the rest of what it had sent may take to arrive. */
const drainMs = 2000;
const headLength = 200;

/**
 * One trainer process: lines in, events out, in order. The first fault (a line that is no event, a line without end, its
 * own end) is what `next` rejects with from then on, once the events before it were taken.
 */
export class Sidecar {
  readonly #child: ChildProcess;
  readonly #options: SidecarOptions;
  readonly #events: SidecarEvent[] = [];
  readonly #tail: string[] = [];
  #waiting: Deferred<SidecarEvent> | null = null;
  #fault: MassError | null = null;
  /** Resolves once the process is gone and everything it had sent was read. */
  readonly ended: Promise<void>;

  constructor(options: SidecarOptions) {
    this.#options = options;
    const { program, args, cwd, env } = options.command;
    // Its own process group: it is killed with all it started, and Ctrl-C in a terminal does not reach it.
    this.#child = spawn(program, [...args], { cwd, env: { ...env }, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
    const lines = new LineSplitter({ maxBytes: options.lineBytes, onLine: (line) => this.#receive(line) });
    this.#child.stdout?.on('data', (chunk: Buffer) => {
      if (!lines.push(chunk)) this.#break(this.#tooLong(lines.head(headLength)));
    });
    if (this.#child.stderr) createInterface({ input: this.#child.stderr }).on('line', (line) => this.#print(line));
    // Writing to a process that is gone fails; whoever waits for an answer learns that from its end.
    this.#child.stdin?.on('error', () => undefined);
    this.ended = this.#awaitEnd();
  }

  /** 0 when it could not be started. */
  get pid(): number {
    return this.#child.pid ?? 0;
  }

  send(message: ToTrainer): void {
    if (this.#child.stdin?.writable) this.#child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  /**
   * The next event. Errors: `infrastructure` when none comes within `silenceMs`, and for every fault of the process;
   * `prerequisite` when it cannot be started or speaks another protocol; whatever `fail` was given.
   */
  next(silenceMs: number, what: string): Promise<SidecarEvent> {
    const event = this.#events.shift();
    if (event) return Promise.resolve(event);
    if (this.#fault) return Promise.reject(this.#fault);
    const waiting = deferred<SidecarEvent>();
    this.#waiting = waiting;
    const timer = setTimeout(() => {
      const minutes = Math.max(1, Math.round(silenceMs / 60_000));
      this.#break(
        new MassError(
          'infrastructure',
          `The trainer said nothing for ${minutes} minute${minutes === 1 ? '' : 's'} while it was to ${what}, and was ended; run the stage again.`,
          { details: { silenceMs } },
        ),
      );
    }, silenceMs);
    return waiting.promise.finally(() => clearTimeout(timer));
  }

  /** Whoever waits is rejected with this, now and later; what came before counts no more. */
  fail(error: MassError): void {
    this.#events.length = 0;
    this.#settleFault(error);
  }

  /** Ends its input, which ends it; waits `graceMs`, then kills its group. Never throws. */
  async stop(graceMs: number): Promise<void> {
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.kill(), graceMs);
    await this.ended;
    clearTimeout(timer);
  }

  kill(): void {
    if (this.#child.pid === undefined) return;
    try {
      process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // The group is gone already: that is what was wanted.
    }
  }

  #receive(line: string): void {
    if (line.trim() === '' || this.#fault) return;
    const event = parseEvent(line);
    if (event instanceof MassError) this.#break(event);
    else if (event.kind === 'log') this.#log(event);
    else if (this.#waiting) {
      const waiting = this.#waiting;
      this.#waiting = null;
      waiting.resolve(event);
    } else this.#events.push(event);
  }

  #log({ level, message, fields }: Extract<FromTrainer, { kind: 'log' }>): void {
    this.#keep(message);
    this.#options.logger.log(level, message, fields);
  }

  /** A process that cannot be trusted any more is ended at once. */
  #break(error: MassError): void {
    if (this.#fault) return;
    this.#settleFault(error);
    this.kill();
  }

  #settleFault(error: MassError): void {
    this.#fault ??= error;
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.reject(this.#fault);
  }

  #tooLong(head: string): MassError {
    return new MassError(
      'infrastructure',
      `The trainer sent a line of more than ${this.#options.lineBytes} bytes and was ended; run the stage again.`,
      { details: { head } },
    );
  }

  #print(line: string): void {
    this.#keep(line);
    this.#options.logger.log('debug', line);
  }

  #keep(line: string): void {
    this.#tail.push(line.slice(0, 500));
    if (this.#tail.length > keptLogLines) this.#tail.shift();
  }

  async #awaitEnd(): Promise<void> {
    const child = this.#child;
    const drained = Promise.all(
      [child.stdout, child.stderr].map((stream) => new Promise<void>((resolve) => stream?.once('close', resolve))),
    );
    const failed = await new Promise<Error | null>((resolve) => {
      child.once('exit', () => resolve(null));
      // Not started at all: there will be no exit.
      child.once('error', (error) => child.pid === undefined && resolve(error));
    });
    let timer: NodeJS.Timeout | undefined;
    const bound = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, drainMs);
    });
    // A process that it started may hold the pipe open: the wait is bounded.
    if (failed === null) await Promise.race([drained, bound]);
    clearTimeout(timer);
    this.kill(); // what it started must not outlive it
    this.#settleFault(failed ? notStarted(this.#options.command.program, failed) : this.#endError());
  }

  #endError(): MassError {
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `exit code ${exitCode}` : `signal ${signalCode}`;
    // Whoever kills it from here has set another fault before: this is how Linux takes memory back.
    const hint = signalCode === 'SIGKILL' ? ' The system may have run out of memory.' : '';
    const lines = this.#tail.length === 0 ? '' : ` Its last lines were: ${this.#tail.join(' | ')}`;
    return new MassError(
      'infrastructure',
      `The trainer ended (${how}) before its work was done; run the stage again.${hint}${lines}`,
      { details: { exitCode, signal: signalCode, lastLines: [...this.#tail] } },
    );
  }
}

const notStarted = (program: string, cause: Error): MassError =>
  new MassError(
    'prerequisite',
    `The trainer's Python ${program} cannot be started; mend it with: mass doctor --repair`,
    {
      cause,
    },
  );

function parseEvent(line: string): FromTrainer | MassError {
  let data: unknown;
  try {
    data = JSON.parse(line);
  } catch {
    return garbage(line, 'it is not JSON');
  }
  const { kind, protocol } = (data ?? {}) as { kind?: unknown; protocol?: unknown };
  if (kind === 'hello' && protocol !== trainerProtocol)
    return new MassError(
      'prerequisite',
      `The trainer speaks protocol ${String(protocol)} and this program ${trainerProtocol}; install both of one version.`,
    );
  const parsed = FromTrainer.safeParse(data);
  return parsed.success ? parsed.data : garbage(line, parsed.error.issues[0]?.message ?? 'it is no event');
}

const garbage = (line: string, reason: string): MassError =>
  new MassError(
    'infrastructure',
    `The trainer sent a line that cannot be read (${reason}) and was ended; run the stage again. The line begins: ${line.slice(0, headLength)}`,
    { details: { head: line.slice(0, headLength) } },
  );
