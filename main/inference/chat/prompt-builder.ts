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
  readonly #starts = new Map<number, number>();
  /** A turn ended at `end`, and where `turn` begins is not known before more is written. */
  #opening: { readonly turn: number; readonly end: number } | null = null;

  constructor(markers: MarkerTokens) {
    this.#markers = markers;
  }

  template(text: string): void {
    this.#write(this.#markers.split(text));
  }

  #write(parts: readonly (string | number)[]): void {
    for (const part of parts) {
      if (typeof part === 'string') {
        this.#run += part;
        continue;
      }
      this.#flush();
      this.#open();
      this.#lastMarkerAt = this.#ids.length;
      this.#ids.push(part);
    }
  }

  /**
   * Template text that leads to `turn`. The turn begins at the marker that follows `endId`, the marker that ends a turn;
   * without `endId` in the text it has no beginning of its own.
   */
  leadIn(text: string, { turn, endId }: { turn: number; endId: number | null }): void {
    const parts = this.#markers.split(text);
    const after = endId === null ? 0 : parts.lastIndexOf(endId) + 1;
    this.#write(parts.slice(0, after));
    if (after > 0) this.#opening = { turn, end: this.#ids.length };
    this.#write(parts.slice(after));
  }

  content(text: string): void {
    // The content goes on in the run that the turn's end began, so no token boundary lies between.
    if (this.#opening !== null) this.#starts.set(this.#opening.turn, this.#opening.end);
    this.#opening = null;
    this.#run += text;
  }

  ids(ids: readonly number[]): void {
    this.#flush();
    this.#open();
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

  /** `starts`: where turns begin, by turn. */
  finish(): { ids: number[]; forkPoints: number[]; starts: ReadonlyMap<number, number> } {
    this.#flush();
    this.#open();
    const forkPoints = [...this.#forks].filter((at) => at > 0 && at <= this.#ids.length).sort((a, b) => a - b);
    return { ids: this.#ids, forkPoints, starts: this.#starts };
  }

  #open(): void {
    if (this.#opening !== null) this.#starts.set(this.#opening.turn, this.#ids.length);
    this.#opening = null;
  }

  #flush(): void {
    for (const id of this.#markers.plain(this.#run)) this.#ids.push(id);
    this.#run = '';
  }
}
