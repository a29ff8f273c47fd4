import type { BodyParser, ParsedSink } from './completion-parser.ts';
import type { JsonObject } from './json-object.ts';
import { partialEnd, TrimmedText } from './reasoning-split.ts';

/**
 * What stands between `<tool_call>` and a `</tool_call>`: a call, something that is none, or the beginning of a call
 * whose value happens to contain the closing tag.
 */
export type BlockReading =
  | { readonly kind: 'call'; readonly name: string; readonly arguments: JsonObject }
  | { readonly kind: 'malformed' }
  | { readonly kind: 'unfinished' };

const openTag = '<tool_call>';
const closeTag = '</tool_call>';

/** Text with `<tool_call>` blocks. A block that is no call, or never ends, is content: nothing of it is executed. */
export class ToolCallBlocks implements BodyParser {
  readonly #sink: ParsedSink;
  readonly #read: (inside: string) => BlockReading;
  readonly #text = new TrimmedText();
  #held = '';
  #inBlock = false;
  /** where in the held block the next closing tag is looked for */
  #searchFrom = 0;

  constructor(sink: ParsedSink, read: (inside: string) => BlockReading) {
    this.#sink = sink;
    this.#read = read;
  }

  push(text: string): void {
    this.#held += text;
    while (this.#inBlock ? this.#block() : this.#prose());
  }

  finish(): void {
    this.#content(this.#held);
    this.#held = '';
  }

  /** True when a block began. */
  #prose(): boolean {
    const at = this.#held.indexOf(openTag);
    const length = at >= 0 ? at : this.#held.length - partialEnd(this.#held, openTag);
    this.#content(this.#held.slice(0, length));
    this.#held = this.#held.slice(length);
    this.#inBlock = at >= 0;
    this.#searchFrom = openTag.length;
    return this.#inBlock;
  }

  /** True when the block ended, or may end at a later closing tag that is already here. */
  #block(): boolean {
    const end = this.#held.indexOf(closeTag, this.#searchFrom);
    if (end < 0) {
      this.#searchFrom = Math.max(openTag.length, this.#held.length - closeTag.length + 1);
      return false;
    }
    const reading = this.#read(this.#held.slice(openTag.length, end));
    const after = end + closeTag.length;
    this.#searchFrom = after;
    if (reading.kind === 'unfinished') return true;
    if (reading.kind === 'call') this.#sink.call(reading.name, reading.arguments);
    else this.#content(this.#held.slice(0, after));
    this.#held = this.#held.slice(after);
    this.#inBlock = false;
    return true;
  }

  #content(text: string): void {
    this.#sink.content(this.#text.push(text));
  }
}
