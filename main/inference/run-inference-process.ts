import { MassError, toErrorData } from '../common/base/errors.ts';
import type { Logger, LogLevel } from '../common/base/logger.ts';
import type { AssistantMessage } from '../common/domain/chat.ts';
import type { DeviceReport, MemoryPlan } from '../common/domain/memory-plan.ts';
import { type FromInference, type LoadOrder, ToInference } from '../common/protocol/inference.ts';
import type { CreateChatFormat, SampledTokenLedger } from './chat/chat-format.ts';
import { scorePrompts } from './model/score-prompts.ts';
import type { ServedModel } from './model/served-model.ts';
import { CompletionService } from './server/completion-service.ts';
import { InferenceServer } from './server/inference-server.ts';
import { Owners } from './server/owners.ts';
import { Recorder } from './server/recorder.ts';

/** What the process is made of; tests put a scripted model here. */
export interface InferenceParts {
  readonly load: (order: LoadOrder, options: { logger: Logger }) => Promise<{ model: ServedModel; plan: MemoryPlan }>;
  readonly plan: (order: LoadOrder, options: { logger: Logger }) => Promise<MemoryPlan>;
  readonly probe: (options: { logger: Logger }) => Promise<DeviceReport>;
  readonly createFormat: CreateChatFormat;
  readonly createLedger: () => SampledTokenLedger;
  readonly hashMessage: (message: AssistantMessage) => string;
}

/** Waiting requests beyond which the endpoint answers 429. */
const maxQueued = 256;
const pulseMs = 1000;

/**
 * The inference process: takes orders over Node IPC, serves HTTP. Its one argument is the path of a unix socket to listen
 * on as well. It ends with its parent, on `shutdown`, and with exit code 1 on an error nobody caught.
 */
export async function runInferenceProcess(parts: InferenceParts): Promise<void> {
  if (process.send === undefined) {
    throw new MassError('usage', 'The inference process is started by the engine, not by hand.');
  }
  const inference = new InferenceProcess(parts, process.argv[2] ?? null);
  process.on('uncaughtException', (error) => void inference.fail(error));
  process.on('unhandledRejection', (error) => void inference.fail(error));
  // Nothing here outlives the engine: all that counts is in its store. A native call in flight must not delay the end.
  process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
  // Ctrl-C in a terminal reaches the whole group; the engine decides when this process stops.
  process.on('SIGINT', () => undefined);
  process.on('message', (message) => void inference.receive(message));
  await inference.start();
}

class InferenceProcess {
  readonly #parts: InferenceParts;
  readonly #owners: Owners;
  readonly #server: InferenceServer;
  readonly #recorder = new Recorder((record) => this.#send({ kind: 'record', record }));
  readonly #socketPath: string | null;
  readonly #logger: Logger = {
    log: (level: LogLevel, message: string, fields?: Record<string, unknown>) => {
      void this.#send({ kind: 'log', level, message, ...(fields === undefined ? {} : { fields: plain(fields) }) });
    },
  };
  #model: ServedModel | null = null;
  #loading = false;

  constructor(parts: InferenceParts, socketPath: string | null) {
    this.#parts = parts;
    this.#socketPath = socketPath;
    this.#owners = new Owners(parts.createLedger);
    this.#server = new InferenceServer({ owners: this.#owners, logger: this.#logger, socketPath });
  }

  async start(): Promise<void> {
    const port = await this.#server.listen();
    await this.#send({ kind: 'ready', pid: process.pid, port, socketPath: this.#socketPath });
  }

  async receive(raw: unknown): Promise<void> {
    const parsed = ToInference.safeParse(raw);
    if (!parsed.success) {
      this.#logger.log('error', 'The engine sent a message that does not parse.', { issue: parsed.error.message });
      return;
    }
    const message = parsed.data;
    switch (message.kind) {
      case 'load':
        return this.#load(message.order);
      case 'plan':
        return this.#plan(message.id, message.order);
      case 'probe':
        return this.#probe(message.id);
      case 'grant':
        this.#owners.grant(message.token, message.owner, message.ledger);
        return this.#send({ kind: 'granted', token: message.token });
      case 'revoke':
        return this.#owners.revoke(message.token);
      case 'resume':
        return this.#owners.resume(message.owner, message.requestId, message);
      case 'recorded':
        return this.#recorder.settle(message.completionId, null);
      case 'record-failed':
        return this.#recorder.settle(message.completionId, message.error);
      case 'score':
        return this.#score(message);
      case 'shutdown':
        return this.#shutdown();
    }
  }

  /** The last words of a process that cannot go on. */
  async fail(error: unknown): Promise<never> {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.stderr.write(`${text}\n`);
    // Whether or not the engine still hears it, this process ends.
    const last = this.#send({
      kind: 'log',
      level: 'error',
      message: 'The inference process failed.',
      fields: { text },
    });
    await Promise.race([last.catch(() => undefined), new Promise((resolve) => setTimeout(resolve, 500))]);
    process.exit(1);
  }

  async #load(order: LoadOrder): Promise<void> {
    const isFirst = !this.#loading;
    try {
      if (!isFirst) throw new MassError('conflict', 'A model is loaded already; start another process for another.');
      this.#loading = true;
      const { model, plan } = await this.#parts.load(order, { logger: this.#logger });
      this.#model = model;
      this.#server.serve(
        new CompletionService({
          model,
          format: this.#parts.createFormat(model),
          hashMessage: this.#parts.hashMessage,
          record: (record) => this.#recorder.record(record),
          reportProgress: (progress) => void this.#send({ kind: 'progress', ...progress }),
          maxQueued,
        }),
      );
      const { id, architecture, device, contextSize, sequences } = model.info;
      setInterval(() => this.#pulse(model), pulseMs).unref();
      await this.#send({ kind: 'loaded', status: { id, architecture, device, contextSize, sequences, plan } });
    } catch (error) {
      // Another load may be tried in this process. A refusal because of an earlier one changes nothing.
      if (isFirst) {
        await this.#model?.dispose();
        this.#model = null;
        this.#loading = false;
      }
      await this.#send({ kind: 'load-failed', error: toErrorData(error) });
    }
  }

  #pulse(model: ServedModel): void {
    const { running, generatedTokens, batchSizes } = model.metrics();
    const batches = Object.values(batchSizes).reduce((sum, count) => sum + count, 0);
    this.#send({ kind: 'pulse', running, work: batches + generatedTokens }).catch(() => undefined); // the engine is gone
  }

  async #plan(id: number, order: LoadOrder): Promise<void> {
    try {
      const plan = await this.#parts.plan(order, { logger: this.#logger });
      await this.#send({ kind: 'plan-result', id, plan, error: null });
    } catch (error) {
      await this.#send({ kind: 'plan-result', id, plan: null, error: toErrorData(error) });
    }
  }

  async #probe(id: number): Promise<void> {
    try {
      const device = await this.#parts.probe({ logger: this.#logger });
      await this.#send({ kind: 'probe-result', id, device, error: null });
    } catch (error) {
      await this.#send({ kind: 'probe-result', id, device: null, error: toErrorData(error) });
    }
  }

  async #score(order: Extract<ToInference, { kind: 'score' }>): Promise<void> {
    try {
      const vocabulary = await scorePrompts(this.#model, order);
      await this.#send({ kind: 'score-result', id: order.id, vocabulary, error: null });
    } catch (error) {
      await this.#send({ kind: 'score-result', id: order.id, vocabulary: null, error: toErrorData(error) });
    }
  }

  async #shutdown(): Promise<void> {
    await this.#server.dispose();
    await this.#model?.dispose();
    process.exit(0);
  }

  #send(message: FromInference): Promise<void> {
    return new Promise((resolve, reject) => {
      process.send?.(message, undefined, undefined, (error) => (error ? reject(error) : resolve()));
    });
  }
}

/** IPC carries structured clones; functions and the like would make sending throw. */
function plain(fields: Record<string, unknown>): Record<string, unknown> {
  return JSON.parse(
    JSON.stringify(fields, (_key, value: unknown) =>
      value instanceof Error ? value.message : typeof value === 'bigint' ? String(value) : value,
    ),
  ) as Record<string, unknown>;
}
