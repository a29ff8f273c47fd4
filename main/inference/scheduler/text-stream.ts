/** Ids held back waiting for the rest of a character; the longest UTF-8 sequence is 4 bytes, so more is not one. */
const MAX_HELD = 4;
/** Earlier ids shown to the detokenizer: some vocabularies decide leading spaces by them. */
const CONTEXT_IDS = 4;

export type Detokenize = (ids: readonly number[], before: readonly number[]) => string;

/** Turns ids into text as they come, never splitting a character: byte-level tokens may carry part of one. */
export class TextStream {
  readonly #detokenize: Detokenize;
  #held: number[] = [];
  #before: number[] = [];

  constructor(detokenize: Detokenize) {
    this.#detokenize = detokenize;
  }

  /** Text that became complete with this id, "" while a character is incomplete. */
  push(id: number): string {
    this.#held.push(id);
    const text = this.#detokenize(this.#held, this.#before);
    if (text.endsWith('\uFFFD') && this.#held.length < MAX_HELD) return '';
    this.#before = [...this.#before, ...this.#held].slice(-CONTEXT_IDS);
    this.#held = [];
    return text;
  }
}
