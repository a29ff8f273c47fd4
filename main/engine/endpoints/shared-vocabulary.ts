import type { Vocabulary } from './vocabulary.ts';

export interface SharedVocabularyOptions<T> {
  readonly open: (target: T) => Promise<Vocabulary>;
  /** equal keys: the same vocabulary */
  readonly keyOf: (target: T) => string;
  /** how long one stays open after its last use */
  readonly idleMs?: number;
}

/**
 * One vocabulary at a time, opened when it is needed and kept for a while: whoever pages through windows asks many times.
 * Uses take turns. A use that fails closes it, since its process may be what failed.
 */
export class SharedVocabulary<T> {
  readonly #options: SharedVocabularyOptions<T>;
  #held: { readonly key: string; readonly vocabulary: Vocabulary } | null = null;
  #timer: NodeJS.Timeout | undefined;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: SharedVocabularyOptions<T>) {
    this.#options = options;
  }

  use<R>(target: T, work: (vocabulary: Vocabulary) => Promise<R>): Promise<R> {
    return this.#next(async () => {
      clearTimeout(this.#timer);
      const vocabulary = await this.#of(target);
      try {
        const result = await work(vocabulary);
        this.#timer = setTimeout(() => void this.dispose(), this.#options.idleMs ?? 30_000).unref();
        return result;
      } catch (error) {
        await this.#close();
        throw error;
      }
    });
  }

  /** Closes what is open, after the uses before it. It may be used again. */
  dispose(): Promise<void> {
    return this.#next(() => this.#close());
  }

  #next<R>(work: () => Promise<R>): Promise<R> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined); // told to whoever asked
    return done;
  }

  async #of(target: T): Promise<Vocabulary> {
    const key = this.#options.keyOf(target);
    if (this.#held?.key !== key) {
      await this.#close();
      this.#held = { key, vocabulary: await this.#options.open(target) };
    }
    return this.#held.vocabulary;
  }

  async #close(): Promise<void> {
    clearTimeout(this.#timer);
    const held = this.#held;
    this.#held = null;
    await held?.vocabulary.dispose();
  }
}
