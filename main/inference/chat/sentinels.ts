import { randomBytes } from 'node:crypto';

/** What stands behind a mark in a rendered text. `turn` is the index of an assistant turn. */
export type Slot =
  | { readonly kind: 'text'; readonly text: string; readonly user: boolean; readonly forkAt: number | null }
  | { readonly kind: 'answer'; readonly turn: number }
  | { readonly kind: 'reasoning'; readonly turn: number };

export type Piece =
  | { readonly kind: 'template'; readonly text: string }
  | { readonly kind: 'slot'; readonly slot: Slot; readonly jsonEscaped: boolean };

/**
 * Stand-ins for everything in a conversation that is not the template's own text. A template decides by what it reads
 * (`startswith`, `split('</think>')`) and prints what it is given; with marks in place of contents no content can steer
 * it, and afterwards every character is known to be the template's or a content's.
 *
 * A mark is two private-use characters around a random nonce, and it ends in a quote: where the template printed it as
 * JSON the quote comes out escaped, which tells how to write the content there.
 */
export class Sentinels {
  readonly #nonce = randomBytes(8).toString('hex');
  readonly #slots: Slot[] = [];
  readonly #turns = new Map<Slot, number>();
  #turn: number | null = null;

  /** Marks made from here on belong to this turn. */
  beginTurn(turn: number): void {
    this.#turn = turn;
  }

  /** Null: no turn's, e.g. a tool definition's. */
  turnOf(slot: Slot): number | null {
    return this.#turns.get(slot) ?? null;
  }

  mark(slot: Slot): string {
    this.#slots.push(slot);
    if (this.#turn !== null) this.#turns.set(slot, this.#turn);
    return `\uE0F1${this.#nonce}.${this.#slots.length - 1}"\uE0F2`;
  }

  /**
   * A mark for `text`, between the text's own white space: whether the template trims it is the template's decision.
   * White space alone stays as it is, so that tests for emptiness see what they would see.
   */
  text(text: string, options: { user?: boolean; forkAt?: number | null } = {}): string {
    const core = text.trim();
    if (core === '') return text;
    const lead = text.length - text.trimStart().length;
    const trail = text.slice(text.trimEnd().length);
    const forkAt = options.forkAt === undefined || options.forkAt === null ? null : options.forkAt - lead;
    const inside = forkAt !== null && forkAt > 0 && forkAt < core.length ? forkAt : null;
    return (
      text.slice(0, lead) + this.mark({ kind: 'text', text: core, user: options.user ?? false, forkAt: inside }) + trail
    );
  }

  /** The rendered text in order. A mark that the template printed altered stays in a template piece: see `isClean`. */
  split(rendered: string): Piece[] {
    const pieces: Piece[] = [];
    const pattern = new RegExp(`\uE0F1${this.#nonce}\\.(\\d+)(\\\\?)"\uE0F2`, 'gu');
    let at = 0;
    for (const match of rendered.matchAll(pattern)) {
      const slot = this.#slots[Number(match[1])];
      if (slot === undefined) continue;
      if (match.index > at) pieces.push({ kind: 'template', text: rendered.slice(at, match.index) });
      pieces.push({ kind: 'slot', slot, jsonEscaped: match[2] === '\\' });
      at = match.index + match[0].length;
    }
    if (at < rendered.length) pieces.push({ kind: 'template', text: rendered.slice(at) });
    return pieces;
  }

  isClean(pieces: readonly Piece[]): boolean {
    return pieces.every((piece) => piece.kind === 'slot' || !piece.text.includes(this.#nonce));
  }
}
