import { createHash } from 'node:crypto';
import { CompletionChain } from '../../common/domain/completion-chain.ts';
import type { CompletionRecord, LedgerEntry } from '../../common/protocol/inference.ts';
import type { SampledTokenLedger } from '../chat/chat-format.ts';

/** What a crashed process had sampled for a request that will come again. */
export interface ResumePoint {
  readonly sampledIds: readonly number[];
  readonly resumedAt: readonly number[];
}

/** One who may ask: an episode, a judgment, a proposal. */
export interface Owner {
  readonly name: string;
  readonly ledger: SampledTokenLedger;
  readonly chain: CompletionChain;
  readonly running: Map<string, Promise<CompletionRecord>>;
  /** latest recorded answers of replayable requests, for a client whose connection broke before it had read the answer */
  readonly recent: Map<string, CompletionRecord>;
  readonly resumePoints: Map<string, ResumePoint>;
}

interface OwnerEntry {
  readonly owner: Owner;
  readonly tokens: Set<string>;
}

/**
 * Bearer tokens and whom they name. Tokens are looked up by their SHA-256, so the time a look-up takes says nothing
 * about the tokens that exist.
 */
export class Owners {
  readonly #byName = new Map<string, OwnerEntry>();
  readonly #byToken = new Map<string, OwnerEntry>();
  readonly #createLedger: () => SampledTokenLedger;

  constructor(createLedger: () => SampledTokenLedger) {
    this.#createLedger = createLedger;
  }

  grant(token: string, name: string, ledger: readonly LedgerEntry[]): void {
    const entry = this.#byName.get(name) ?? this.#create(name);
    for (const { messageHash, sampledIds } of ledger) entry.owner.ledger.add(messageHash, sampledIds);
    const key = digest(token);
    entry.tokens.add(key);
    this.#byToken.set(key, entry);
  }

  /** The owner is forgotten with its last token. */
  revoke(token: string): void {
    const key = digest(token);
    const entry = this.#byToken.get(key);
    if (entry === undefined) return;
    this.#byToken.delete(key);
    entry.tokens.delete(key);
    if (entry.tokens.size === 0) this.#byName.delete(entry.owner.name);
  }

  find(token: string): Owner | undefined {
    return this.#byToken.get(digest(token))?.owner;
  }

  /** Ignored for an owner without a token: nobody can ask for it. */
  resume(name: string, requestId: string, point: ResumePoint): void {
    this.#byName.get(name)?.owner.resumePoints.set(requestId, point);
  }

  #create(name: string): OwnerEntry {
    const owner: Owner = {
      name,
      ledger: this.#createLedger(),
      chain: new CompletionChain(),
      running: new Map(),
      recent: new Map(),
      resumePoints: new Map(),
    };
    const entry: OwnerEntry = { owner, tokens: new Set() };
    this.#byName.set(name, entry);
    return entry;
  }
}

const digest = (token: string): string => createHash('sha256').update(token).digest('hex');
