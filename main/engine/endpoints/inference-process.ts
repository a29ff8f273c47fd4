import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { deferred } from '../../common/base/deferred.ts';
import type { AsyncDisposable } from '../../common/base/disposable.ts';
import { fromErrorData, MassError, toErrorData } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { MemoryPlan } from '../../common/domain/memory-plan.ts';
import type {
  CompletionRecord,
  FromInference,
  LedgerEntry,
  LoadOrder,
  ModelStatus,
} from '../../common/protocol/inference.ts';
import { untilAborted } from '../../node/until-aborted.ts';
import { CrashBudget, type RestartPolicy } from './crash-budget.ts';
import { GrantBook } from './grant-book.ts';
import { ChildEnded, InferenceChild, inferenceEntry } from './inference-child.ts';
import { runsOnCpu } from './inference-environment.ts';
import { RequestBook, type TrackedRequest } from './request-book.ts';
import { type Pulse, StallWatch } from './stall-watch.ts';

export interface InferenceOptions {
  readonly order: LoadOrder;
  /** Stores a completion; the answer is given once this resolves. */
  readonly onRecord: (record: CompletionRecord) => Promise<void>;
  /** Sampled ids of an owner from before this engine started; those of its own time are kept here. */
  readonly ledgerOf?: (owner: string) => Promise<LedgerEntry[]>;
  readonly logger: Logger;
  /** Source or built file of the process. */
  readonly entry?: string;
  /** Unix socket to listen on besides the TCP port. */
  readonly socketPath?: string | null;
  readonly readyMs?: number;
  readonly loadMs?: number;
  /** How long a stopping process may take before it is killed. */
  readonly stopMs?: number;
  readonly restarts?: RestartPolicy;
  /** A process that has work and makes no progress for this long is ended and started again. */
  readonly stallMs?: number;
}

/** Where the endpoint listens now; another number after every restart. */
export interface Serving {
  readonly port: number;
  readonly incarnation: number;
}

/**
 * Starts the inference process and loads the model. Errors: what the process says of a model it cannot load (not tried
 * again), MassError infrastructure when it keeps crashing or does not answer in time.
 */
export async function startInference(options: InferenceOptions): Promise<InferenceProcess> {
  const inference = new InferenceProcess(options);
  try {
    await inference.serving();
    return inference;
  } catch (error) {
    await inference.dispose();
    throw error;
  }
}

const minute = 60_000;

/** Longer than a slice of a prompt takes: seconds on a GPU; on a busy CPU minutes, the more the larger the model. */
const stallMsOf = ({ gpuLayers, parts }: MemoryPlan): number =>
  (gpuLayers > 0 ? 10 : 10 + 3 * (parts.weights / 1e9)) * minute;

/** Keeps one inference process alive, and with it what a restarted one has to know. */
export class InferenceProcess implements AsyncDisposable {
  readonly #options: InferenceOptions;
  readonly #book = new RequestBook();
  readonly #grants = new GrantBook();
  readonly #crashes: CrashBudget;
  readonly #stalls: CrashBudget;
  readonly #stopping = new AbortController();
  readonly #life: Promise<void>;
  #serving = deferred<Serving>();
  #child: InferenceChild | null = null;
  #status: ModelStatus | null = null;
  #incarnation = 0;
  #onPulse: (pulse: Pulse) => void = () => undefined;

  constructor(options: InferenceOptions) {
    this.#options = options;
    this.#crashes = new CrashBudget(options.restarts);
    // Stalls come slowly: a request that stalls every process must end as a failure all the same.
    this.#stalls = new CrashBudget({ crashes: 3, windowMs: 24 * 3_600_000, backoffMs: 250 });
    this.#serving.promise.catch(() => undefined);
    this.#life = this.#live();
  }

  /** Of the loaded model, as last reported. */
  get status(): ModelStatus {
    if (this.#status === null) throw new MassError('infrastructure', 'The model is not loaded.');
    return this.#status;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Resolves when the endpoint can be used; waits for restarts. Errors: MassError of the final failure; cancelled. */
  serving(signal?: AbortSignal): Promise<Serving> {
    return untilAborted(this.#serving.promise, signal);
  }

  /** A connection to `incarnation` broke: resolves when that process is known to be gone, or `waitMs` later. */
  async connectionLost(incarnation: number, waitMs = 1000): Promise<void> {
    if (incarnation !== this.#incarnation || this.#child === null) return;
    const timer = new AbortController();
    await Promise.race([this.#child.ended, sleep(waitMs, undefined, { signal: timer.signal })]);
    timer.abort();
  }

  /** A bearer token for `owner`, usable at once. Errors: those of `serving` and of `ledgerOf`. */
  async grant(owner: string): Promise<string> {
    const token = randomBytes(32).toString('base64url');
    this.#grants.add(token, owner);
    try {
      await this.#announce(token, owner);
      return token;
    } catch (error) {
      this.revoke(token);
      throw error;
    }
  }

  async #announce(token: string, owner: string): Promise<void> {
    for (;;) {
      const ledger = await this.#ledgerOf(owner);
      await this.serving();
      const child = this.#child;
      if (child === null) continue;
      const granted = child.next(
        (message) => (message.kind === 'granted' && message.token === token ? true : undefined),
        'accept a token',
        this.#options.readyMs ?? 30_000,
      );
      child.send({ kind: 'grant', token, owner, ledger });
      try {
        await granted;
        return;
      } catch (error) {
        // The next process gets the token with all others; asking once more confirms it.
        if (error instanceof ChildEnded) continue;
        throw error;
      }
    }
  }

  revoke(token: string): void {
    if (this.#grants.delete(token)) this.#child?.send({ kind: 'revoke', token });
  }

  /** Says that a request is about to be sent: what is sampled for it is kept until `forget`. */
  track(owner: string, requestId: string): TrackedRequest {
    return this.#book.track(owner, requestId);
  }

  async dispose(): Promise<void> {
    if (!this.#stopping.signal.aborted) {
      this.#stopping.abort();
      await this.#child?.stop(this.#options.stopMs ?? 5000);
    }
    await this.#life;
  }

  /** Start, serve, end; again after a crash. Ends by `dispose` or a failure that another start would not mend. */
  async #live(): Promise<void> {
    let everServed = false;
    while (!this.#stopping.signal.aborted) {
      const child = this.#start();
      let serves = false;
      let stalled = false;
      try {
        const serving = await this.#bringUp(child);
        everServed = serves = true;
        this.#serving.resolve(serving);
        stalled = await this.#watch(child);
        throw new ChildEnded(stalled ? 'it made no progress any more' : child.epitaph);
      } catch (error) {
        // At once: whoever learns of the end must not be sent to the same port again.
        if (serves) this.#renewServing();
        await child.stop(0);
        if (this.#stopping.signal.aborted) break;
        const failure = (stalled ? this.#stalls : this.#crashes).count(error, { retryAny: everServed });
        if (failure !== null) return this.#fail(failure);
        this.#options.logger.log('warn', 'The inference process ended and is restarted.', { error: String(error) });
        await sleep(this.#crashes.backoffMs, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
      }
    }
    this.#fail(new MassError('cancelled', 'The inference process was stopped.'));
    this.#verifyGone();
  }

  /** Resolves when the process has ended: true when it had to be, because it did not get on. */
  async #watch(child: InferenceChild): Promise<boolean> {
    let stalled = false;
    const watch = new StallWatch({
      stallMs: this.#options.stallMs ?? stallMsOf(this.status.plan),
      onStall: () => {
        stalled = true;
        this.#options.logger.log('error', 'The inference process makes no progress and is ended.', { pid: child.pid });
        child.kill();
      },
    });
    this.#onPulse = (pulse) => watch.pulse(pulse);
    await child.ended;
    watch.stop();
    return stalled;
  }

  #start(): InferenceChild {
    const { order, logger, entry = inferenceEntry, socketPath = null } = this.#options;
    this.#incarnation++;
    const child: InferenceChild = new InferenceChild({
      entry,
      socketPath,
      cpu: runsOnCpu(order.model.gpu),
      onMessage: (message) => void this.#receive(child, message),
      onLog: (level, message, fields) => logger.log(level, message, fields),
    });
    this.#child = child;
    return child;
  }

  async #bringUp(child: InferenceChild): Promise<Serving> {
    const { order, readyMs = 30_000, loadMs = 1_800_000 } = this.#options;
    const port = await child.next((message) => (message.kind === 'ready' ? message.port : undefined), 'start', readyMs);
    for (const [token, owner] of this.#grants.tokens()) {
      child.send({ kind: 'grant', token, owner, ledger: await this.#ledgerOf(owner) });
    }
    for (const point of this.#book.resumePoints()) child.send({ kind: 'resume', ...point });
    const loaded = child.next(
      (message) => (message.kind === 'loaded' || message.kind === 'load-failed' ? message : undefined),
      'load the model',
      loadMs,
    );
    child.send({ kind: 'load', order });
    const outcome = await loaded;
    if (outcome.kind === 'load-failed') throw fromErrorData(outcome.error);
    this.#status = outcome.status;
    return { port, incarnation: this.#incarnation };
  }

  async #ledgerOf(owner: string): Promise<LedgerEntry[]> {
    return [...((await this.#options.ledgerOf?.(owner)) ?? []), ...this.#grants.ledger(owner)];
  }

  async #receive(child: InferenceChild, message: FromInference): Promise<void> {
    forwardLog(this.#options.logger, message);
    if (message.kind === 'progress') this.#book.progress(message);
    if (message.kind === 'pulse' && child === this.#child) this.#onPulse(message);
    if (message.kind !== 'record') return;
    const { completionId } = message.record;
    try {
      await this.#book.record(message.record, this.#options.onRecord);
      this.#grants.learn(message.record);
      child.send({ kind: 'recorded', completionId });
    } catch (error) {
      this.#options.logger.log('error', 'A completion could not be recorded.', { completionId, error: String(error) });
      child.send({ kind: 'record-failed', completionId, error: toErrorData(error) });
    }
  }

  #renewServing(): void {
    this.#serving = deferred<Serving>();
    this.#serving.promise.catch(() => undefined);
  }

  #fail(error: MassError): void {
    this.#serving.reject(error);
  }

  #verifyGone(): void {
    // 0 would be this process's own group.
    if (this.pid === 0) return;
    try {
      process.kill(this.pid, 0);
      this.#options.logger.log('error', `The inference process ${this.pid} could not be ended; kill it by hand.`);
    } catch {
      // No such process: it is gone.
    }
  }
}

export function forwardLog(logger: Logger, message: FromInference): void {
  if (message.kind === 'log') logger.log(message.level, message.message, message.fields);
}
