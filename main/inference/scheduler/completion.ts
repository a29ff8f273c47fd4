import { StopMatcher } from './stop-matcher.ts';
import { type Detokenize, TextStream } from './text-stream.ts';

export interface CompletionLimits {
  readonly endIds: ReadonlySet<number>;
  readonly stopTexts: readonly string[];
  /** sampled ids at most: maxTokens, or what the context leaves */
  readonly maxIds: number;
}

/** The sampled ids of one request and the rules that end it. */
export class Completion {
  readonly ids: number[] = [];
  finishReason: 'stop' | 'length' | null = null;
  stopText: string | null = null;
  readonly #limits: CompletionLimits;
  readonly #text: TextStream | null;
  readonly #stops: StopMatcher;

  constructor(limits: CompletionLimits, detokenize: Detokenize) {
    this.#limits = limits;
    this.#stops = new StopMatcher(limits.stopTexts);
    // Without stop texts nothing needs the text here, and detokenizing costs time on every token.
    this.#text = limits.stopTexts.length > 0 ? new TextStream(detokenize) : null;
    if (limits.maxIds <= 0) this.finishReason = 'length';
  }

  /** Appends an id; true when it ended the completion. */
  push(id: number): boolean {
    this.ids.push(id);
    if (this.#limits.endIds.has(id)) {
      this.finishReason = 'stop';
      return true;
    }
    if (this.#text !== null) {
      this.stopText = this.#stops.push(this.#text.push(id));
      if (this.stopText !== null) {
        this.finishReason = 'stop';
        return true;
      }
    }
    if (this.ids.length >= this.#limits.maxIds) this.finishReason = 'length';
    return this.finishReason !== null;
  }
}
