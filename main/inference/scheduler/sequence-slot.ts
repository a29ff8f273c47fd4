import type {
  EvaluationPriority,
  LlamaContext,
  LlamaContextSequence,
  LlamaGrammarEvaluationState,
  Token,
} from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import { type CheckpointKind, type CheckpointLimits, checkpointRoom } from './checkpoints.ts';
import type { ExclusiveGate } from './exclusive-gate.ts';
import type { SamplerOptions } from './sampling.ts';
import { heldCheckpoints, sequenceId, storeCheckpoint } from './sequence-internals.ts';
import { commonPrefix } from './slot-choice.ts';

/** The library brands ids; ours are plain numbers from its own tokenizer. */
const tokens = (ids: number[]): Token[] => ids as Token[];

export interface PrefillOptions {
  /** tokens of the next slice; asked each time, because it depends on who else is running */
  readonly sliceSize: () => number;
  readonly signal: AbortSignal;
}

export interface SampleOptions extends SamplerOptions {
  /** asked before each token; undefined while nothing is constrained */
  readonly grammarEvaluationState?: () => LlamaGrammarEvaluationState | undefined;
  readonly onToken: (id: number) => boolean;
  readonly signal: AbortSignal;
}

/**
 * One sequence of the context and what it remembers between requests. Callers own it for the length of a request.
 *
 * Rewinding goes through checkpoints and only ever to one exactly: node-llama-cpp would otherwise re-evaluate the rest
 * itself, in one piece that cannot be aborted. Shifting tokens (`allowShift`, context shift) corrupts recurrent state, so
 * it is never allowed.
 */
export class SequenceSlot {
  affinity: string | null = null;
  /** value of the scheduler's assignment counter when it was last used */
  lastUsed = 0;
  busy = false;
  readonly #context: LlamaContext;
  readonly #gate: ExclusiveGate;
  readonly #limits: CheckpointLimits;
  #sequence: LlamaContextSequence;
  /** ids of an idle sequence; the library copies them at every look, and the queue looks often */
  #idleIds: readonly number[] | null = null;

  constructor(options: { context: LlamaContext; gate: ExclusiveGate; limits: CheckpointLimits }) {
    this.#context = options.context;
    this.#gate = options.gate;
    this.#limits = options.limits;
    this.#sequence = this.#open();
  }

  get sequence(): LlamaContextSequence {
    return this.#sequence;
  }

  /** Forgets what was cached about the idle state; call when the slot is given to a request. */
  take(): void {
    this.busy = true;
    this.#idleIds = null;
  }

  get held(): number {
    return this.#sequence.nextTokenIndex;
  }

  get checkpointBytes(): number {
    return this.#sequence.checkpointsMemoryUsage;
  }

  /** Leading ids of `target` that are in place or can be brought back without evaluation. */
  reusable(target: readonly number[]): number {
    const held = this.#ids();
    const common = commonPrefix(held, target);
    if (common === held.length || !this.#sequence.needsCheckpoints) return common;
    return heldCheckpoints(this.#sequence).reduce(
      (best, { length }) => (length <= common && length > best ? length : best),
      0,
    );
  }

  #ids(): readonly number[] {
    if (this.busy) return this.#sequence.contextTokens;
    this.#idleIds ??= this.#sequence.contextTokens;
    return this.#idleIds;
  }

  /** Makes the state the longest reusable prefix of `target`; returns its length. */
  async rewind(target: readonly number[]): Promise<number> {
    const keep = this.reusable(target);
    if (keep < this.held)
      await this.#gate.exclusive(() => this.#sequence.adaptStateToTokens(tokens(target.slice(0, keep)), false));
    if (this.held !== keep)
      throw new MassError('internal', `A sequence holds ${this.held} tokens after a rewind to ${keep}.`);
    return keep;
  }

  /** Evaluates ids without sampling, slice by slice, so that an abort and the other sequences wait for one slice only. */
  async prefill(ids: readonly number[], options: PrefillOptions): Promise<void> {
    await this.#gate.stepping(async () => {
      for (let at = 0; at < ids.length; ) {
        options.signal.throwIfAborted();
        await this.#gate.pass();
        const slice = ids.slice(at, at + options.sliceSize());
        await this.#sequence.evaluateWithoutGeneratingNewTokens(tokens(slice), this.#batchOrder());
        at += slice.length;
      }
    });
    options.signal.throwIfAborted();
  }

  /** Evaluates `last` and samples until `onToken` returns true. The last sampled id is not evaluated. */
  async sample(last: number, options: SampleOptions): Promise<void> {
    const { signal, onToken, ...sampler } = options;
    await this.#gate.stepping(async () => {
      await this.#gate.pass();
      signal.throwIfAborted();
      for await (const id of this.#sequence.evaluate(tokens([last]), {
        ...sampler,
        ...this.#batchOrder(),
        yieldEogToken: true,
      })) {
        if (onToken(id)) return;
        signal.throwIfAborted();
        // No await on the common path: a sequence that is late by a tick misses the batch.
        if (this.#gate.closed) await this.#gate.pass();
      }
    });
  }

  /** Evaluates `last` and tells the probability of every next id at temperature 1. */
  async distribution(last: number): Promise<ReadonlyMap<number, number>> {
    const generateNext = { probabilities: true, options: { temperature: 1, topK: 0, topP: 1 } };
    const output = await this.#gate.stepping(async () => {
      await this.#gate.pass();
      return this.#sequence.controlledEvaluate([[last as Token, { generateNext }]], this.#batchOrder());
    });
    const probabilities = output[0]?.next.probabilities;
    if (probabilities === undefined) throw new MassError('internal', 'The model gave no distribution.');
    return probabilities;
  }

  /** Keeps the present state when the model needs that to come back to it. */
  async checkpoint(kind: CheckpointKind): Promise<void> {
    if (!this.#sequence.needsCheckpoints) return;
    const present = heldCheckpoints(this.#sequence);
    if (present.some(({ length }) => length === this.held)) return;
    const size = present.at(-1)?.bytes ?? 0;
    const room = checkpointRoom(this.#limits, size)[kind];
    // Forks keep the earliest (the beginnings most requests share), turns keep the latest.
    if (room === 0 || (kind === 'fork' && present.filter((held) => held.kind === 'fork').length >= room)) return;
    await this.#gate.exclusive(() => storeCheckpoint(this.#sequence, kind, room));
  }

  /** Replaces the sequence by a fresh one: after a failed evaluation nobody knows its state. */
  async reset(): Promise<void> {
    await this.#gate.exclusive(() => this.#sequence.dispose());
    this.#sequence = this.#open();
    this.affinity = null;
  }

  async dispose(): Promise<void> {
    await this.#sequence.dispose();
  }

  /** The library hands a step's priority to the batching strategy untouched; ours reads the sequence id from it. */
  #batchOrder(): { evaluationPriority: EvaluationPriority } {
    return { evaluationPriority: sequenceId(this.#sequence) as EvaluationPriority };
  }

  #open(): LlamaContextSequence {
    return this.#context.getSequence({
      checkpoints: { interval: false, max: this.#limits.perSequence },
      contextShift: {
        strategy: () => {
          throw new MassError('internal', 'A sequence reached the end of its context; lengths are enforced earlier.');
        },
      },
    });
  }
}
