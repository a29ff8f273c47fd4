/**
 * Conversations grow by appending, so a completion's prompt is kept as a prefix of an earlier completion of the same
 * thread plus a tail: the space of a conversation is linear in its length instead of quadratic.
 */
export interface ChainLink {
  readonly parentCompletionId: string | null;
  /** tokens taken from the parent's prompt ++ sampled */
  readonly parentPrefix: number;
  readonly promptTail: readonly number[];
}

export interface ChainLimits {
  /** earlier completions compared, newest first */
  readonly perThread: number;
  /** ids held of one owner (4 bytes each) */
  readonly idsPerOwner: number;
}

const defaultLimits: ChainLimits = { perThread: 8, idsPerOwner: 4_000_000 };

interface Entry {
  readonly thread: string;
  readonly completionId: string;
  /** prompt ++ sampled */
  readonly ids: Uint32Array;
}

/** What is remembered of one owner's completions. Forgetting one costs space in the record, never correctness. */
export class CompletionChain {
  readonly #limits: ChainLimits;
  /** oldest first */
  #entries: Entry[] = [];

  constructor(limits: ChainLimits = defaultLimits) {
    this.#limits = limits;
  }

  /** The link with the longest common prefix among the remembered completions of `thread`; parentless when none shares a token. */
  link(thread: string, promptIds: readonly number[]): ChainLink {
    let parent: Entry | null = null;
    let parentPrefix = 0;
    for (const entry of this.#entries) {
      if (entry.thread !== thread) continue;
      const prefix = commonPrefix(entry.ids, promptIds);
      if (prefix > parentPrefix) {
        parent = entry;
        parentPrefix = prefix;
      }
    }
    return {
      parentCompletionId: parent?.completionId ?? null,
      parentPrefix,
      promptTail: promptIds.slice(parentPrefix),
    };
  }

  /** Remembers a completion that was recorded: only those may become parents. */
  add(thread: string, completionId: string, promptIds: readonly number[], sampledIds: readonly number[]): void {
    const ids = new Uint32Array(promptIds.length + sampledIds.length);
    ids.set(promptIds);
    ids.set(sampledIds, promptIds.length);
    this.#entries.push({ thread, completionId, ids });
    const ofThread = this.#entries.filter((entry) => entry.thread === thread);
    if (ofThread.length > this.#limits.perThread) this.#entries.splice(this.#entries.indexOf(ofThread[0] as Entry), 1);
    let held = this.#entries.reduce((sum, entry) => sum + entry.ids.length, 0);
    while (held > this.#limits.idsPerOwner && this.#entries.length > 0) {
      held -= this.#entries.shift()?.ids.length ?? 0;
    }
  }
}

/** Number of leading ids `a` and `b` share. */
export function commonPrefix(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const end = Math.min(a.length, b.length);
  let i = 0;
  while (i < end && a[i] === b[i]) i++;
  return i;
}

/** The exact prompt of a record: `(parent.prompt ++ parent.sampled).slice(0, parentPrefix) ++ promptTail`. */
export function promptOf(link: ChainLink, parentIds: readonly number[] | null): number[] {
  if (link.parentCompletionId === null) return [...link.promptTail];
  if (parentIds === null || parentIds.length < link.parentPrefix) {
    throw new RangeError(
      `Completion ${link.parentCompletionId} holds ${parentIds?.length ?? 0} tokens, but ${link.parentPrefix} of them are referred to.`,
    );
  }
  return [...parentIds.slice(0, link.parentPrefix), ...link.promptTail];
}
