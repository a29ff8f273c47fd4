import type { ServedModel } from '../model/served-model.ts';

/** Tags that structure answers. In many vocabularies they are single ids without being control tokens. */
const structuralTags = [
  '<think>',
  '</think>',
  '<tool_call>',
  '</tool_call>',
  '<tool_response>',
  '</tool_response>',
] as const;

type Tokenizer = Pick<ServedModel, 'info' | 'tokenize' | 'detokenize'>;

/**
 * The single ids that may come from the template only: control tokens, and "user-defined" tokens such as `</think>`
 * that the template spells. The second kind is the reason for this class: llama.cpp matches those spellings in any text,
 * even when asked to treat it as plain.
 */
export class MarkerTokens {
  readonly #tokenizer: Tokenizer;
  readonly #ids = new Map<string, number>();
  readonly #pattern: RegExp | null;

  constructor(tokenizer: Tokenizer, templateSource: string) {
    this.#tokenizer = tokenizer;
    for (let id = 0; id < tokenizer.info.vocabularySize; id++) {
      const spelling = tokenizer.detokenize([id], { special: true });
      if (spelling !== '' && tokenizer.detokenize([id], { special: false }) === '') this.#ids.set(spelling, id);
    }
    for (const tag of [...structuralTags, ...bracketed(templateSource)]) {
      const [id, ...rest] = tokenizer.tokenize(tag, { special: true });
      if (id !== undefined && rest.length === 0) this.#ids.set(tag, id);
    }
    const longestFirst = [...this.#ids.keys()].sort((a, b) => b.length - a.length);
    this.#pattern = longestFirst.length === 0 ? null : new RegExp(longestFirst.map(escapeRegExp).join('|'), 'g');
  }

  idOf(spelling: string): number | null {
    return this.#ids.get(spelling) ?? null;
  }

  /** Text of the template itself: plain runs and marker ids in order. */
  split(text: string): (string | number)[] {
    const parts: (string | number)[] = [];
    let at = 0;
    for (const match of this.#matches(text)) {
      if (match.index > at) parts.push(text.slice(at, match.index));
      const id = this.#ids.get(match[0]);
      if (id !== undefined) parts.push(id);
      at = match.index + match[0].length;
    }
    if (at < text.length) parts.push(text.slice(at));
    return parts;
  }

  /** Ids of text without a single marker among them: a marker's spelling is cut after its first character. */
  plain(text: string): number[] {
    const ids: number[] = [];
    const add = (part: string) => {
      for (const id of this.#tokenizer.tokenize(part, { special: false })) ids.push(id);
    };
    let at = 0;
    for (const match of this.#matches(text)) {
      const cut = match.index + String.fromCodePoint(match[0].codePointAt(0) ?? 0).length;
      add(text.slice(at, cut));
      at = cut;
    }
    if (at < text.length) add(text.slice(at));
    return ids;
  }

  contains(text: string): boolean {
    return !this.#matches(text).next().done;
  }

  #matches(text: string): RegExpStringIterator<RegExpExecArray> {
    return text.matchAll(this.#pattern ?? /(?!)/g);
  }
}

const escapeRegExp = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');

const bracketed = (source: string): string[] => [
  ...new Set(source.match(/<[^\s<>'"{}]{1,40}>|\[[A-Z_/]{2,40}\]/g) ?? []),
];
