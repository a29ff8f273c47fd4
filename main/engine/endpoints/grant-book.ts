import type { CompletionRecord, LedgerEntry } from '../../common/protocol/inference.ts';

/** Bearer tokens that are valid, and the sampled ids of their owners: a restarted process is told both. */
export class GrantBook {
  /** token -> owner */
  readonly #owners = new Map<string, string>();
  /** owner -> message hash -> sampled ids */
  readonly #ledgers = new Map<string, Map<string, number[]>>();

  add(token: string, owner: string): void {
    this.#owners.set(token, owner);
    if (!this.#ledgers.has(owner)) this.#ledgers.set(owner, new Map());
  }

  /** False when the token was not valid. An owner's ledger goes with its last token. */
  delete(token: string): boolean {
    const owner = this.#owners.get(token);
    if (owner === undefined) return false;
    this.#owners.delete(token);
    if (![...this.#owners.values()].includes(owner)) this.#ledgers.delete(owner);
    return true;
  }

  learn({ owner, messageHash, sampledIds }: CompletionRecord): void {
    this.#ledgers.get(owner)?.set(messageHash, sampledIds);
  }

  ledger(owner: string): LedgerEntry[] {
    return [...(this.#ledgers.get(owner) ?? [])].map(([messageHash, sampledIds]) => ({ messageHash, sampledIds }));
  }

  tokens(): [token: string, owner: string][] {
    return [...this.#owners];
  }
}
