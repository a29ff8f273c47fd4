/** What the inference process says of itself every second. */
export interface Pulse {
  /** requests being worked on */
  readonly running: number;
  /** grows with every batch and every sampled token */
  readonly work: number;
}

export interface StallWatchOptions {
  /** without progress for this long while work is there, or without a pulse at all */
  readonly stallMs: number;
  readonly onStall: () => void;
  /** milliseconds that only go forward; for tests */
  readonly now?: () => number;
}

/**
 * Notices a process that lives but does nothing any more: a decode that never returns keeps its requests waiting for ever,
 * and no exit tells of it. Calls `onStall` once; `stop` ends the watch.
 */
export class StallWatch {
  readonly #options: StallWatchOptions;
  readonly #now: () => number;
  #work = -1;
  #lastSign: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StallWatchOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#lastSign = this.#now();
    this.#timer = setInterval(() => this.check(), options.stallMs / 10).unref();
  }

  pulse({ running, work }: Pulse): void {
    if (running > 0 && work === this.#work) return;
    this.#work = work;
    this.#lastSign = this.#now();
  }

  check(): void {
    if (this.#timer === undefined || this.#now() - this.#lastSign < this.#options.stallMs) return;
    this.stop();
    this.#options.onStall();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
