import type { LedgerEntry } from '../../common/protocol/inference.ts';
import type { SampledTokenLedger } from './chat-format.ts';

/** More turns than any episode's limit; a turn of 2,000 ids takes about 16 kB. */
const defaultMaxEntries = 4096;

/** Sampled ids of one owner, in memory. The least recently used entry leaves first; the store keeps all of them. */
export class MemoryLedger implements SampledTokenLedger {
  readonly #entries = new Map<string, readonly number[]>();
  readonly #maxEntries: number;

  constructor(maxEntries = defaultMaxEntries) {
    this.#maxEntries = maxEntries;
  }

  find(messageHash: string): readonly number[] | undefined {
    const ids = this.#entries.get(messageHash);
    if (ids === undefined) return undefined;
    this.#entries.delete(messageHash);
    this.#entries.set(messageHash, ids);
    return ids;
  }

  /** A message recorded twice keeps the later ids. */
  add(messageHash: string, sampledIds: readonly number[]): void {
    this.#entries.delete(messageHash);
    this.#entries.set(messageHash, [...sampledIds]);
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > this.#maxEntries && oldest !== undefined) this.#entries.delete(oldest);
  }

  /** Least recently used first; `restore` of it gives an equal ledger. */
  entries(): LedgerEntry[] {
    return [...this.#entries].map(([messageHash, sampledIds]) => ({ messageHash, sampledIds: [...sampledIds] }));
  }

  restore(entries: readonly LedgerEntry[]): void {
    for (const { messageHash, sampledIds } of entries) this.add(messageHash, sampledIds);
  }
}
