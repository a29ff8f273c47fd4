/** Why a checkpoint is kept: `fork`, other requests branch here; `turn`, this conversation may come back to here. */
export type CheckpointKind = 'fork' | 'turn';

export interface CheckpointLimits {
  /** checkpoints of one sequence at most */
  readonly perSequence: number;
  /** bytes of one sequence's checkpoints at most */
  readonly bytes: number;
}

/**
 * How many checkpoints of each kind a sequence keeps, once the size of one is known. Forks are few and early, turns
 * many and late, so each kind has its own room: a long conversation must not push out the shared beginning.
 */
export function checkpointRoom(limits: CheckpointLimits, sizeBytes: number): Record<CheckpointKind, number> {
  const count = Math.min(limits.perSequence, sizeBytes > 0 ? Math.floor(limits.bytes / sizeBytes) : limits.perSequence);
  const fork = Math.ceil(count / 2);
  return { fork, turn: count - fork };
}

/** How far before the prompt's end its last turn may end for one checkpoint to serve both. */
const CLOSE_TOKENS = 32;

/**
 * Prompt lengths at which the state is worth keeping, ascending: the fork points, and the end of the last turn before
 * the assistant's. The generation prompt itself (role header, opened think block) is left out where it is short,
 * because the next prompt may rewrite it. The last prompt token is never included: evaluating it gives the first logits.
 */
export function checkpointPositions(options: {
  promptIds: readonly number[];
  forkPoints: readonly number[];
  endIds: ReadonlySet<number>;
}): Map<number, CheckpointKind> {
  const { promptIds, forkPoints, endIds } = options;
  const last = promptIds.length - 1;
  const positions = new Map<number, CheckpointKind>();
  let turnEnd = last;
  while (turnEnd > 0 && !endIds.has(promptIds[turnEnd - 1] as number)) turnEnd--;
  const turn = turnEnd > 0 && last - turnEnd <= CLOSE_TOKENS ? turnEnd : last;
  if (turn > 0) positions.set(turn, 'turn');
  for (const point of forkPoints) if (point > 0 && point <= last) positions.set(point, 'fork');
  return new Map([...positions].sort(([a], [b]) => a - b));
}
