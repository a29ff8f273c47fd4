import type { LlamaContext } from 'node-llama-cpp';
import { cancelled, MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { GenerateRequest, GenerateResult, SchedulerMetrics } from '../model/served-model.ts';
import type { CheckpointLimits } from './checkpoints.ts';
import type { ExclusiveGate } from './exclusive-gate.ts';
import {
  checkRequest,
  fillSlot,
  type GenerationDependencies,
  type GenerationRun,
  prefixOf,
  runGeneration,
} from './generation.ts';
import { logProbabilities } from './log-probabilities.ts';
import { RequestQueue } from './request-queue.ts';
import { assertInternals } from './sequence-internals.ts';
import { SequenceSlot } from './sequence-slot.ts';
import { chooseSlot } from './slot-choice.ts';

export interface SchedulerOptions extends Omit<GenerationDependencies, 'sliceSize'> {
  readonly context: LlamaContext;
  readonly gate: ExclusiveGate;
  readonly checkpoints: CheckpointLimits;
  readonly sequences: number;
  readonly logger: Logger;
}

/** Tokens of a prefill slice: alone, and while others decode (each of their tokens waits for the batch it is in). */
const SLICE_ALONE = 512;
const SLICE_SHARED = 256;

interface Waiting {
  readonly request: GenerateRequest;
  readonly priority: number;
  /** ids to have in place; kept because the choice looks at it every time a sequence frees up */
  readonly target: readonly number[];
  readonly since: number;
  readonly start: (slot: SequenceSlot) => void;
  readonly fail: (error: unknown) => void;
}

/** Runs requests on the context's sequences: at most one a sequence, the rest wait in a fair queue. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #slots: SequenceSlot[];
  readonly #queue = new RequestQueue<Waiting>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #stop = new AbortController();
  readonly #dependencies: GenerationDependencies;
  #assignments = 0;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#slots = Array.from(
      { length: options.sequences },
      () => new SequenceSlot({ context: options.context, gate: options.gate, limits: options.checkpoints }),
    );
    for (const slot of this.#slots) assertInternals(slot.sequence, options.model);
    this.#dependencies = {
      ...options,
      sliceSize: () => (options.gate.expected > 1 ? SLICE_SHARED : SLICE_ALONE),
    };
  }

  generate(request: GenerateRequest): Promise<GenerateResult> {
    return this.#use(request, async (slot, run) => {
      const result = await runGeneration(request, slot, this.#dependencies, run);
      this.#options.metrics.complete();
      return result;
    });
  }

  /**
   * Probability of every next id after the request's prompt, at temperature 1. For tests: what a sequence with a past
   * says must equal what a fresh one says.
   */
  nextTokenProbabilities(request: GenerateRequest): Promise<ReadonlyMap<number, number>> {
    return this.#use(request, async (slot, run) => {
      await fillSlot(request, slot, this.#dependencies, run.signal);
      return slot.distribution(request.promptIds.at(-1) as number);
    });
  }

  /** Log-probabilities after each of the prompt's last `positions` ids; see `ServedModel.scoreNext`. */
  scoreNext(request: GenerateRequest, positions: number): Promise<Float32Array[]> {
    const { promptIds } = request;
    const first = promptIds.length - positions;
    if (positions < 1 || first < 0)
      throw new MassError(
        'invalid_input',
        `A prompt of ${promptIds.length} tokens has no ${positions} last positions.`,
      );
    // One id at a time, as in serving: a block of queries is rounded otherwise than a single one.
    return this.#use(request, async (slot, run) => {
      await fillSlot({ ...request, promptIds: promptIds.slice(0, first + 1) }, slot, this.#dependencies, run.signal);
      const rows: Float32Array[] = [];
      for (const id of promptIds.slice(first)) {
        run.signal.throwIfAborted();
        rows.push(logProbabilities(await slot.distribution(id)));
      }
      return rows;
    });
  }

  metrics(): SchedulerMetrics {
    return this.#options.metrics.snapshot({
      queued: this.#queue.length,
      running: this.#running.size,
      checkpointBytes: this.#slots.reduce((sum, slot) => sum + slot.checkpointBytes, 0),
    });
  }

  /** Cancels what waits and what runs, then frees the sequences. */
  async dispose(): Promise<void> {
    this.#stop.abort();
    for (const waiting of this.#queue.drain()) waiting.fail(cancelled('The model was unloaded.'));
    await Promise.allSettled(this.#running);
    await Promise.all(this.#slots.map((slot) => slot.dispose()));
  }

  #acquire(request: GenerateRequest): Promise<{ slot: SequenceSlot; queueMs: number }> {
    return new Promise((resolve, reject) => {
      if (request.signal?.aborted || this.#stop.signal.aborted) {
        reject(cancelled('The request was cancelled.'));
        return;
      }
      const since = performance.now();
      const onAbort = (): void => {
        if (this.#queue.remove(waiting)) reject(cancelled('The request was cancelled while it waited.'));
      };
      const waiting: Waiting = {
        request,
        priority: request.priority ?? 0,
        target: prefixOf(request),
        since,
        start: (slot) => {
          request.signal?.removeEventListener('abort', onAbort);
          resolve({ slot, queueMs: performance.now() - since });
        },
        fail: (error) => {
          request.signal?.removeEventListener('abort', onAbort);
          reject(error);
        },
      };
      request.signal?.addEventListener('abort', onAbort, { once: true });
      this.#queue.push(waiting);
      this.#pump();
    });
  }

  #pump(): void {
    for (;;) {
      const free = this.#slots.filter((slot) => !slot.busy);
      if (free.length === 0) return;
      const next = this.#queue.take((waiting) => Math.max(...free.map((slot) => slot.reusable(waiting.target))));
      if (next === undefined) return;
      const { affinity } = next.request;
      const views = free.map((slot) => ({
        affinity: slot.affinity,
        held: slot.held,
        reusable: slot.reusable(next.target),
        age: this.#assignments - slot.lastUsed,
      }));
      const slot = free[chooseSlot(views, { affinity, sequences: this.#slots.length })] as SequenceSlot;
      slot.take();
      slot.affinity = affinity ?? null;
      slot.lastUsed = ++this.#assignments;
      next.start(slot);
    }
  }

  /** Waits for a slot, works on it, frees it; errors leave as MassErrors. */
  async #use<T>(request: GenerateRequest, work: (slot: SequenceSlot, run: GenerationRun) => Promise<T>): Promise<T> {
    checkRequest(request, this.#options.contextSize);
    const { slot, queueMs } = await this.#acquire(request);
    const signals = [this.#stop.signal, ...(request.signal ? [request.signal] : [])];
    const running = this.#guarded(slot, { signal: AbortSignal.any(signals), queueMs }, work);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
      slot.busy = false;
      this.#pump();
    }
  }

  async #guarded<T>(
    slot: SequenceSlot,
    run: GenerationRun,
    work: (slot: SequenceSlot, run: GenerationRun) => Promise<T>,
  ): Promise<T> {
    try {
      return await work(slot, run);
    } catch (error) {
      if (run.signal.aborted) throw cancelled('The request was cancelled.');
      if (error instanceof MassError && error.code === 'invalid_input') throw error;
      this.#options.logger.log('error', 'A request failed while evaluating', { error: String(error) });
      await slot.reset();
      if (error instanceof MassError) throw error;
      throw new MassError('infrastructure', 'The model failed while evaluating the request; it can be sent again.', {
        cause: error,
      });
    }
  }
}
