/**
 * Lets one slot at a time do what needs the whole context: rewind, checkpoint, release of a sequence.
 *
 * Why it exists: node-llama-cpp holds its context lock for as long as any sequence has a decode queued, so under steady
 * decoding a rewind or checkpoint of another sequence would wait until every running completion has ended. Sequences
 * therefore ask the gate before each step; while somebody waits for it they pause, the decode queue drains, the lock
 * is released, and the work costs the others at most one step.
 */
export class ExclusiveGate {
  #stepping = 0;
  #paused = 0;
  #waiters = 0;
  #tail: Promise<void> = Promise.resolve();
  #reopened: Promise<void> | null = null;
  #reopen: () => void = () => undefined;

  /** Sequences that are about to queue a decode step: what a full batch must contain. */
  get expected(): number {
    return this.#stepping - this.#paused;
  }

  get closed(): boolean {
    return this.#waiters > 0;
  }

  /** Runs `work`, whose steps count towards full batches and which calls `pass` before each of them. */
  async stepping<T>(work: () => Promise<T>): Promise<T> {
    this.#stepping++;
    try {
      return await work();
    } finally {
      this.#stepping--;
    }
  }

  /** Call before every step, only from inside `stepping`. Resolves at once when nobody waits. */
  async pass(): Promise<void> {
    while (this.#reopened !== null) {
      this.#paused++;
      try {
        await this.#reopened;
      } finally {
        this.#paused--;
      }
    }
  }

  /** Runs `work` while no sequence steps; calls queue in order. Never call it from inside `stepping`. */
  async exclusive<T>(work: () => Promise<T>): Promise<T> {
    if (this.#waiters++ === 0) {
      this.#reopened = new Promise((resolve) => {
        this.#reopen = resolve;
      });
    }
    const turn = this.#tail.then(work);
    // The chain only orders the work; its outcome belongs to the caller of this turn.
    this.#tail = turn.then(
      () => undefined,
      () => undefined,
    );
    try {
      return await turn;
    } finally {
      if (--this.#waiters === 0) {
        this.#reopened = null;
        this.#reopen();
      }
    }
  }
}
