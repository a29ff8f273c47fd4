import type { CustomBatchingPrioritizationStrategy } from 'node-llama-cpp';

/**
 * Rounds of the dispatch loop to wait for the sequences still on their way. A round is a few microtasks, and a sequence
 * that has its token queues its next step within microtasks; more rounds never helped, an unbounded wait could hang.
 */
const MAX_WAITING_ROUNDS = 64;

export interface FullBatchOptions {
  /** sequences that are about to queue a step */
  readonly expected: () => number;
  /** called once a batch with the number of sequences in it */
  readonly onBatch: (sequences: number) => void;
}

/**
 * Batches every active sequence together. The default strategy starts a batch as soon as anything is queued, which at
 * two sequences makes nearly all batches single: each sequence queues its next token just after the other's batch began.
 *
 * Items are put in the order of their sequence ids, which arrive as their priorities: llama.cpp evaluates sequences in one
 * pass only while ids ascend by one, and makes a pass of its own for every break. In arrival order, eight decoding
 * sequences were up to eight passes.
 *
 * The batch is divided by water filling: a decoding sequence asks for one token and gets it, prefill slices share the
 * rest evenly, so a long prompt never delays the others by more than one batch.
 */
export function fullBatchStrategy({ expected, onBatch }: FullBatchOptions): CustomBatchingPrioritizationStrategy {
  let waited = 0;
  return ({ items, size }) => {
    if (items.length < expected() && waited < MAX_WAITING_ROUNDS) {
      waited++;
      return [];
    }
    waited = 0;
    const shares = fillShares(
      items.map((item) => item.tokens.length),
      size,
    );
    const batch = items
      .flatMap((item, i) => {
        const processAmount = shares[i] ?? 0;
        return processAmount > 0 ? [{ item, processAmount }] : [];
      })
      .sort((a, b) => a.item.evaluationPriority - b.item.evaluationPriority);
    if (batch.length > 0) onBatch(batch.length);
    return batch;
  };
}

/** Splits `size` over `demands`, smallest first, so that nobody gets less than an even share unless it asked for less. */
export function fillShares(demands: readonly number[], size: number): number[] {
  const shares = new Array<number>(demands.length).fill(0);
  const ascending = demands.map((demand, index) => ({ demand, index })).sort((a, b) => a.demand - b.demand);
  let left = size;
  for (const [position, { demand, index }] of ascending.entries()) {
    const even = Math.max(1, Math.floor(left / (ascending.length - position)));
    const share = Math.min(demand, even, left);
    shares[index] = share;
    left -= share;
  }
  return shares;
}
