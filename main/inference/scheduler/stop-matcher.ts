/**
 * Finds stop texts in text that arrives in pieces, across piece boundaries. The match that ends first wins; among
 * matches ending at the same character, the longest.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  readonly #keep: number;
  #tail = '';

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '').sort((a, b) => b.length - a.length);
    this.#keep = Math.max(0, ...this.#stops.map((stop) => stop.length - 1));
  }

  /** The stop text completed by this piece, or null. */
  push(piece: string): string | null {
    if (this.#stops.length === 0 || piece === '') return null;
    const text = this.#tail + piece;
    let found: string | null = null;
    let foundEnd = Number.POSITIVE_INFINITY;
    for (const stop of this.#stops) {
      const at = text.indexOf(stop);
      if (at !== -1 && at + stop.length < foundEnd) {
        found = stop;
        foundEnd = at + stop.length;
      }
    }
    this.#tail = this.#keep === 0 ? '' : text.slice(-this.#keep);
    return found;
  }
}
