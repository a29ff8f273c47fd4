/** What the queue needs to know of a waiting request. */
export interface Queued {
  /** lower runs first */
  readonly priority: number;
}

/** Requests may overtake an equal-priority head that was passed over fewer times than this. */
const MAX_OVERTAKEN = 4;

/**
 * First in, first out within a priority. A request may be taken before an older one of the same priority when the
 * caller prefers it (its prefix is in a free sequence), but each request is overtaken at most a few times, so none starves.
 */
export class RequestQueue<T extends Queued> {
  #waiting: { request: T; overtaken: number }[] = [];

  get length(): number {
    return this.#waiting.length;
  }

  push(request: T): void {
    const after = this.#waiting.findIndex((entry) => entry.request.priority > request.priority);
    this.#waiting.splice(after === -1 ? this.#waiting.length : after, 0, { request, overtaken: 0 });
  }

  /** Takes a request out; false when it was not waiting. */
  remove(request: T): boolean {
    const index = this.#waiting.findIndex((entry) => entry.request === request);
    if (index !== -1) this.#waiting.splice(index, 1);
    return index !== -1;
  }

  /**
   * Takes the next request to run. `gain` says what running a request now saves (tokens); the largest gain among the
   * requests of the head's priority wins, the head itself on ties or when it has waited enough.
   */
  take(gain: (request: T) => number = () => 0): T | undefined {
    const head = this.#waiting[0];
    if (head === undefined) return undefined;
    let best = 0;
    if (head.overtaken < MAX_OVERTAKEN) {
      let bestGain = gain(head.request);
      for (const [i, entry] of this.#waiting.entries()) {
        if (i === 0) continue;
        if (entry.request.priority !== head.request.priority) break;
        const value = gain(entry.request);
        if (value > bestGain) {
          best = i;
          bestGain = value;
        }
        if (entry.overtaken >= MAX_OVERTAKEN) break;
      }
    }
    for (const entry of this.#waiting.slice(0, best)) entry.overtaken++;
    return this.#waiting.splice(best, 1)[0]?.request;
  }

  drain(): T[] {
    return this.#waiting.splice(0).map((entry) => entry.request);
  }
}
