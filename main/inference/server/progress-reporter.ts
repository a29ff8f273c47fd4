const maxTokens = 16;
const maxMs = 200;

export interface ProgressPiece {
  readonly from: number;
  readonly sampledIds: number[];
}

/** Reports sampled ids in pieces of at most 16 tokens or 200 ms, whichever comes first. */
export class ProgressReporter {
  readonly #report: (piece: ProgressPiece) => void;
  #from: number;
  #pending: number[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(from: number, report: (piece: ProgressPiece) => void) {
    this.#from = from;
    this.#report = report;
  }

  push(ids: readonly number[]): void {
    for (const id of ids) this.#pending.push(id);
    if (this.#pending.length >= maxTokens) this.flush();
    else if (this.#pending.length > 0) this.#timer ??= setTimeout(() => this.flush(), maxMs);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending.length === 0) return;
    const piece = { from: this.#from, sampledIds: this.#pending };
    this.#from += this.#pending.length;
    this.#pending = [];
    this.#report(piece);
  }
}
