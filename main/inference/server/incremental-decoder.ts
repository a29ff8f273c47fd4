/** Text of ids, control tokens spelled out. */
export type Decode = (ids: readonly number[]) => string;

/** Tokens after which text that still ends in half a character is taken to be no text at all and given out. */
const maxHeldTokens = 16;

/**
 * Turns ids into text as they come. Decoding piece by piece would lose characters split over tokens and the leading
 * space some tokenizers drop, so each step decodes with the previous piece in front and takes the difference
 * (as vLLM and text-generation-inference do).
 */
export class IncrementalDecoder {
  readonly #decode: Decode;
  readonly #ids: number[] = [];
  /** start of the window that is decoded */
  #windowStart = 0;
  /** end of the ids whose text was given out */
  #given = 0;

  constructor(decode: Decode) {
    this.#decode = decode;
  }

  push(ids: readonly number[]): string {
    let text = '';
    for (const id of ids) text += this.#step(id);
    return text;
  }

  /** The rest, with what stayed incomplete as U+FFFD. */
  finish(): string {
    const { before, now } = this.#window();
    return this.#give(now.slice(before.length));
  }

  #step(id: number): string {
    this.#ids.push(id);
    const { before, now } = this.#window();
    const half = now.endsWith('\uFFFD') && this.#ids.length - this.#given < maxHeldTokens;
    return half || now.length <= before.length ? '' : this.#give(now.slice(before.length));
  }

  #window(): { before: string; now: string } {
    return {
      before: this.#decode(this.#ids.slice(this.#windowStart, this.#given)),
      now: this.#decode(this.#ids.slice(this.#windowStart)),
    };
  }

  #give(text: string): string {
    this.#windowStart = this.#given;
    this.#given = this.#ids.length;
    return text;
  }
}

/** Cuts the text before the first stop text, holding back what may become one. */
export class StopTextFilter {
  readonly #stopTexts: readonly string[];
  #held = '';
  #stopped = false;

  constructor(stopTexts: readonly string[]) {
    this.#stopTexts = stopTexts;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  push(text: string): string {
    if (this.#stopped) return '';
    this.#held += text;
    const at = firstIndex(this.#held, this.#stopTexts);
    if (at !== -1) {
      this.#stopped = true;
      return this.#release(at);
    }
    return this.#release(this.#held.length - this.#possibleStart());
  }

  finish(): string {
    return this.#stopped ? '' : this.#release(this.#held.length);
  }

  #release(length: number): string {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return text;
  }

  /** Length of the longest end of the held text that begins a stop text. */
  #possibleStart(): number {
    let longest = 0;
    for (const stop of this.#stopTexts) {
      for (let n = Math.min(stop.length - 1, this.#held.length); n > longest; n--) {
        if (stop.startsWith(this.#held.slice(-n))) longest = n;
      }
    }
    return longest;
  }
}

function firstIndex(text: string, needles: readonly string[]): number {
  let first = -1;
  for (const needle of needles) {
    const at = text.indexOf(needle);
    if (at !== -1 && (first === -1 || at < first)) first = at;
  }
  return first;
}
