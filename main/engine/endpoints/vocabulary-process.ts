import { type ChildProcess, fork } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type Deferred, deferred } from '../../common/base/deferred.ts';
import { fromErrorData, MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import { FromVocabulary, type ToVocabulary } from '../../common/protocol/vocabulary.ts';
import { inferenceEnvironment } from './inference-environment.ts';
import type { Vocabulary } from './vocabulary.ts';

export const vocabularyEntry = fileURLToPath(new URL('../../inference/vocabulary/main.ts', import.meta.url));

export interface VocabularyOptions {
  readonly path: string;
  readonly modelId: string;
  readonly logger: Logger;
  readonly entry?: string;
  /** How long a stopping process may take before it is killed. */
  readonly stopMs?: number;
}

type Answer = Exclude<FromVocabulary, { kind: 'log' | 'refused' }>;
type Question = Exclude<ToVocabulary, { kind: 'shutdown' }>;
type QuestionBody = Question extends infer Q ? (Q extends Question ? Omit<Q, 'id'> : never) : never;

const keptLogLines = 10;

/**
 * Starts a process that holds a model's vocabulary: no weights, no device, so it may run beside anything. Errors: what
 * the process says of a file it cannot open; `infrastructure` when it ends before it answers.
 */
export async function startVocabulary(options: VocabularyOptions): Promise<Vocabulary> {
  const child = new VocabularyChild(options);
  const dispose = () => child.stop(options.stopMs ?? 5000);
  try {
    const { status } = await child.ask({ kind: 'open', path: options.path, modelId: options.modelId }, 'opened');
    return {
      status,
      learn: async (request) => (await child.ask({ kind: 'learn', request }, 'learned')).wrong,
      render: async (request) => (await child.ask({ kind: 'render', request }, 'rendered')).rendered,
      spell: async (pieces) => (await child.ask({ kind: 'spell', pieces: [...pieces] }, 'spelled')).texts,
      forget: async (owner) => void (await child.ask({ kind: 'forget', owner }, 'forgotten')),
      dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}

class VocabularyChild {
  readonly #child: ChildProcess;
  readonly #logger: Logger;
  readonly #waiting = new Map<number, Deferred<Answer>>();
  readonly #tail: string[] = [];
  readonly #ended: Promise<void>;
  #gone = false;
  #lastId = 0;

  constructor({ entry = vocabularyEntry, logger }: VocabularyOptions) {
    this.#logger = logger;
    // Its own process group, as the inference process: it is killed with all it started, and only by its owner.
    this.#child = fork(entry, [], {
      execPath: process.execPath,
      execArgv: ['--disable-warning=ExperimentalWarning'],
      serialization: 'advanced',
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      env: inferenceEnvironment(process.env, true),
    });
    this.#child.on('message', (raw) => this.#receive(raw));
    for (const stream of [this.#child.stdout, this.#child.stderr])
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#keep(line));
    this.#ended = new Promise((resolve) => {
      this.#child.once('exit', () => resolve(this.#end()));
      this.#child.once('error', (error) => {
        this.#keep(error.message);
        // Not started at all: there will be no exit.
        if (this.#child.pid === undefined) resolve(this.#end());
      });
    });
  }

  async ask<K extends Answer['kind']>(body: QuestionBody, kind: K): Promise<Extract<Answer, { kind: K }>> {
    if (this.#gone) throw this.#endError();
    const id = ++this.#lastId;
    const answer = deferred<Answer>();
    this.#waiting.set(id, answer);
    // A message to a process that is gone is lost; its end rejects what waits.
    this.#child.send({ ...body, id } satisfies Question, () => undefined);
    const given = await answer.promise;
    if (given.kind !== kind)
      throw new MassError('internal', `The vocabulary process answered ${body.kind} with ${given.kind}.`);
    return given as Extract<Answer, { kind: K }>;
  }

  /** Ask, wait, kill the group. Never throws. */
  async stop(graceMs: number): Promise<void> {
    if (this.#child.connected) this.#child.send({ kind: 'shutdown' } satisfies ToVocabulary, () => undefined);
    const timer = setTimeout(() => this.#kill(), graceMs);
    await this.#ended;
    clearTimeout(timer);
  }

  #receive(raw: unknown): void {
    const parsed = FromVocabulary.safeParse(raw);
    if (!parsed.success) {
      this.#logger.log('error', 'The vocabulary process sent a message that does not parse.', {
        issue: parsed.error.message,
      });
      return;
    }
    const message = parsed.data;
    if (message.kind === 'log') {
      this.#keep(message.message);
      this.#logger.log(message.level, message.message, message.fields);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.kind === 'refused') waiting?.reject(fromErrorData(message.error));
    else waiting?.resolve(message);
  }

  #end(): void {
    this.#gone = true;
    this.#kill(); // what it started must not outlive it
    for (const waiting of this.#waiting.values()) waiting.reject(this.#endError());
    this.#waiting.clear();
  }

  #endError(): MassError {
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `exit code ${exitCode}` : `signal ${signalCode}`;
    const lines = this.#tail.length === 0 ? '' : ` Its last lines were: ${this.#tail.join(' | ')}`;
    return new MassError('infrastructure', `The vocabulary process ended (${how}); run the stage again.${lines}`);
  }

  #kill(): void {
    if (this.#child.pid === undefined) return;
    try {
      process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // The group is gone already: that is what was wanted.
    }
  }

  #keep(line: string): void {
    this.#tail.push(line.slice(0, 500));
    if (this.#tail.length > keptLogLines) this.#tail.shift();
  }
}
