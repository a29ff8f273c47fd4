import type { LlamaContextSequence, LlamaGrammarEvaluationState, LlamaModel } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { CheckpointKind } from './checkpoints.ts';

/**
 * The few members of node-llama-cpp that its types hide and the scheduler needs. The package is pinned exactly;
 * `assertInternals` fails at load, not in the middle of a run, should a newer one move them.
 *
 * Named checkpoints: the public `takeCheckpoint` prunes oldest first, which throws away the shared beginning.
 * Positions: the public getter tells only the last one.
 * Sequence id: llama.cpp evaluates sequences together only while their ids ascend without gaps (see full-batch.ts).
 * Accepting tokens: a resumed completion must bring its grammar to where it was.
 */
interface StoredCheckpoint {
  readonly maxPos: number;
  readonly size: number;
}

interface SequenceInternals {
  readonly _sequenceId: number;
  readonly _checkpoints: { readonly _checkpoints: readonly (readonly [string | undefined, StoredCheckpoint])[] };
  _takeNamedCheckpoint(name: string, maxNamedCheckpoints: number): Promise<void>;
}

interface ModelInternals {
  readonly _llama: {
    readonly _bindings: {
      readonly AddonSampler: { acceptGrammarEvaluationStateToken(state: unknown, id: number): void };
    };
  };
}

export interface CheckpointView {
  readonly kind: CheckpointKind;
  /** tokens of the state it restores */
  readonly length: number;
  readonly bytes: number;
}

const internals = (sequence: LlamaContextSequence): SequenceInternals => sequence as unknown as SequenceInternals;

export function assertInternals(sequence: LlamaContextSequence, model: LlamaModel): void {
  const known = internals(sequence);
  const sampler = (model as unknown as ModelInternals)._llama?._bindings?.AddonSampler;
  if (
    typeof known._sequenceId !== 'number' ||
    !Array.isArray(known._checkpoints?._checkpoints) ||
    typeof known._takeNamedCheckpoint !== 'function' ||
    typeof sampler?.acceptGrammarEvaluationStateToken !== 'function'
  )
    throw new MassError(
      'internal',
      'The installed node-llama-cpp is not the version this program was built for; run npm ci to install the pinned one.',
    );
}

export const sequenceId = (sequence: LlamaContextSequence): number => internals(sequence)._sequenceId;

export const heldCheckpoints = (sequence: LlamaContextSequence): CheckpointView[] =>
  internals(sequence)._checkpoints._checkpoints.map(([name, { maxPos, size }]) => ({
    kind: name === 'fork' ? 'fork' : 'turn',
    length: maxPos + 1,
    bytes: size,
  }));

/** Stores the present state under `kind`, pruning the oldest of that kind beyond `room`. */
export const storeCheckpoint = (sequence: LlamaContextSequence, kind: CheckpointKind, room: number): Promise<void> =>
  internals(sequence)._takeNamedCheckpoint(kind, room);

/** Advances a grammar over an id that was sampled earlier. */
export function acceptGrammarToken(model: LlamaModel, state: LlamaGrammarEvaluationState, id: number): void {
  const { _state } = state as unknown as { _state: unknown };
  (model as unknown as ModelInternals)._llama._bindings.AddonSampler.acceptGrammarEvaluationStateToken(_state, id);
}
