const openTag = '<think>';
const closeTag = '</think>';

/** Length of the longest end of `text` that is a proper beginning of `tag`: it may become the tag. */
export function partialEnd(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}

/** Parts a completion into its reasoning block and the rest, as it comes. */
export class ReasoningSplit {
  #state: 'start' | 'reasoning' | 'body';
  #held = '';

  /** `open`: the prompt ended inside the block, so the text begins with reasoning. */
  constructor(open: boolean) {
    this.#state = open ? 'reasoning' : 'start';
  }

  push(text: string): { reasoning: string; body: string } {
    this.#held += text;
    if (this.#state === 'start') this.#begin();
    if (this.#state === 'start') return { reasoning: '', body: '' };
    if (this.#state === 'body') return { reasoning: '', body: this.#take(this.#held.length) };
    const end = this.#held.indexOf(closeTag);
    if (end < 0) return { reasoning: this.#take(this.#held.length - partialEnd(this.#held, closeTag)), body: '' };
    const reasoning = this.#take(end);
    this.#take(closeTag.length);
    this.#state = 'body';
    return { reasoning, body: this.#take(this.#held.length) };
  }

  finish(): { reasoning: string; body: string } {
    const rest = this.#take(this.#held.length);
    return this.#state === 'reasoning' ? { reasoning: rest, body: '' } : { reasoning: '', body: rest };
  }

  /** Models that open the block themselves may put white space before it. */
  #begin(): void {
    const text = this.#held.trimStart();
    if (text.startsWith(openTag)) {
      this.#held = text.slice(openTag.length);
      this.#state = 'reasoning';
    } else if (!openTag.startsWith(text)) this.#state = 'body';
  }

  #take(length: number): string {
    const taken = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return taken;
  }
}

/** Passes text on without the white space at both ends, holding back what may turn out to be the end. */
export class TrimmedText {
  #started = false;
  #space = '';
  text = '';

  push(text: string): string {
    let rest = text;
    if (!this.#started) {
      rest = text.trimStart();
      if (rest === '') return '';
      this.#started = true;
    }
    const kept = rest.trimEnd();
    if (kept === '') {
      this.#space += rest;
      return '';
    }
    const out = this.#space + kept;
    this.#space = rest.slice(kept.length);
    this.text += out;
    return out;
  }
}
