import type { MarkerTokens } from './marker-tokens.ts';

/**
 * Ids of a prompt, piece by piece. Text between two markers is tokenized as one run, whoever wrote it: so ordinary
 * contents give exactly the ids of the whole text. Only `ids` and `fork` end a run early.
 */
export class PromptBuilder {
  readonly #markers: MarkerTokens;
  readonly #ids: number[] = [];
  readonly #forks = new Set<number>();
  #run = '';
  #lastMarkerAt = 0;

  constructor(markers: MarkerTokens) {
    this.#markers = markers;
  }

  template(text: string): void {
    for (const part of this.#markers.split(text)) {
      if (typeof part === 'string') {
        this.#run += part;
        continue;
      }
      this.#flush();
      this.#lastMarkerAt = this.#ids.length;
      this.#ids.push(part);
    }
  }

  content(text: string): void {
    this.#run += text;
  }

  ids(ids: readonly number[]): void {
    this.#flush();
    for (const id of ids) this.#ids.push(id);
  }

  /** A branching point here, made a token boundary. */
  fork(): void {
    this.#flush();
    this.#forks.add(this.#ids.length);
  }

  /** A branching point where the current turn began: before the last marker. */
  forkBeforeTurn(): void {
    this.#forks.add(this.#lastMarkerAt);
  }

  finish(): { ids: number[]; forkPoints: number[] } {
    this.#flush();
    const forkPoints = [...this.#forks].filter((at) => at > 0 && at <= this.#ids.length).sort((a, b) => a - b);
    return { ids: this.#ids, forkPoints };
  }

  #flush(): void {
    for (const id of this.#markers.plain(this.#run)) this.#ids.push(id);
    this.#run = '';
  }
}
