import { findJson } from './embedded-json.ts';

/** Words of a text: runs of letters, digits and underscores, lower case. */
export const wordsOf = (text: string): string[] => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];

/** Distinct runs of `length` words, none across the border of two texts. */
export function ngramsOf(texts: Iterable<string>, length: number): Set<string> {
  const found = new Set<string>();
  for (const text of texts) {
    const words = wordsOf(text);
    for (let i = 0; i + length <= words.length; i++) found.add(words.slice(i, i + length).join(' '));
  }
  return found;
}

/** What a workflow block says: the strings of its JSON one by one, and the text around it; a block without JSON as it is. */
export function workflowTexts(block: string): string[] {
  const found = findJson(block, (value) => typeof value === 'object' && value !== null);
  return found === null ? [block] : [found.before, ...stringsOf(found.value), found.after];
}

/** Every string inside a value that came from JSON, keys left out. */
export function stringsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(stringsOf);
}

export interface WorkflowOverlap {
  /** words of a run */
  readonly ngram: number;
  /** distinct runs of the workflow that were trained */
  readonly shared: number;
  /** distinct runs of the workflow that the bare prompt does not have */
  readonly ofWorkflow: number;
  /** shared / ofWorkflow; 0 when the workflow has none */
  readonly share: number;
}

/** Counts, text by text, how much of a removed workflow is still said in what is trained. */
export class WorkflowOverlapCounter {
  readonly #ngram: number;
  readonly #workflow: readonly string[];
  readonly #wanted: ReadonlySet<string>;
  readonly #shared = new Set<string>();

  /** Runs that the bare prompt has too are nothing the removal took away: they do not count. */
  constructor({ block, barePrompt, ngram }: { block: string; barePrompt: string; ngram: number }) {
    this.#ngram = ngram;
    const bare = ngramsOf([barePrompt], ngram);
    this.#workflow = workflowTexts(block);
    this.#wanted = new Set([...ngramsOf(this.#workflow, ngram)].filter((run) => !bare.has(run)));
  }

  trained(texts: Iterable<string>): void {
    for (const run of ngramsOf(texts, this.#ngram)) if (this.#wanted.has(run)) this.#shared.add(run);
  }

  result(): WorkflowOverlap {
    const [shared, ofWorkflow] = [this.#shared.size, this.#wanted.size];
    return { ngram: this.#ngram, shared, ofWorkflow, share: ofWorkflow === 0 ? 0 : shared / ofWorkflow };
  }

  /** The stretches of the workflow that shared runs cover, as its words, longest possible, each once, in its order. */
  passages(): string[] {
    const found = this.#workflow.flatMap((text) => {
      const words = wordsOf(text);
      const shared = words.map((_, i) => this.#shared.has(words.slice(i, i + this.#ngram).join(' ')));
      const covered = words.map((_, i) => shared.slice(Math.max(0, i - this.#ngram + 1), i + 1).includes(true));
      return stretches(words, covered);
    });
    return [...new Set(found)];
  }
}

function stretches(words: readonly string[], covered: readonly boolean[]): string[] {
  const found: string[] = [];
  for (let i = 0; i < words.length; i++) {
    if (!covered[i]) continue;
    const from = i;
    while (covered[i + 1]) i++;
    found.push(words.slice(from, i + 1).join(' '));
  }
  return found;
}
