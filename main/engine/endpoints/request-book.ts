import type { CompletionRecord, FromInference } from '../../common/protocol/inference.ts';

/** A request of ours on its way: known from before it is sent until its answer is in the caller's hands. */
export interface TrackedRequest {
  /** Its record, once it is stored; null when it is not (yet). Waits for a store in progress. */
  recorded(): Promise<CompletionRecord | null>;
  /** The answer was received, or nobody wants it any more. */
  forget(): void;
}

interface Entry {
  readonly owner: string;
  readonly requestId: string;
  sampledIds: number[];
  resumedAt: number[];
  /** no progress since the process was (re)started: the next one says where sampling went on */
  fresh: boolean;
  recording: Promise<CompletionRecord | null> | null;
}

type Progress = Extract<FromInference, { kind: 'progress' }>;

/**
 * What must survive a crash of the inference process: the ids sampled for each request in flight, and the records of
 * answers that were stored but perhaps never arrived.
 */
export class RequestBook {
  readonly #entries = new Map<string, Entry>();

  track(owner: string, requestId: string): TrackedRequest {
    const key = keyOf(owner, requestId);
    const entry: Entry = { owner, requestId, sampledIds: [], resumedAt: [], fresh: true, recording: null };
    this.#entries.set(key, entry);
    return {
      recorded: async () => (await entry.recording) ?? null,
      forget: () => void this.#entries.delete(key),
    };
  }

  progress({ owner, requestId, from, sampledIds }: Progress): void {
    const entry = this.#entries.get(keyOf(owner, requestId));
    if (entry === undefined || from > entry.sampledIds.length) return;
    if (entry.fresh) entry.resumedAt = from === 0 ? [] : [...entry.resumedAt, from];
    entry.fresh = false;
    entry.sampledIds.length = from;
    for (const id of sampledIds) entry.sampledIds.push(id);
  }

  /** Stores a record by `store`, at most once for a tracked request. Errors: those of `store`. */
  async record(record: CompletionRecord, store: (record: CompletionRecord) => Promise<void>): Promise<void> {
    const entry = this.#entries.get(keyOf(record.owner, record.requestId));
    if (((await entry?.recording) ?? null) !== null) return;
    const stored = store(record);
    if (entry !== undefined) {
      // A failed store is reported below; to whoever asks for the record it means that there is none.
      entry.recording = stored.then(
        () => record,
        () => null,
      );
    }
    await stored;
  }

  /** Where each request of a process that died is to be continued. */
  resumePoints(): { owner: string; requestId: string; sampledIds: number[]; resumedAt: number[] }[] {
    const points = [];
    for (const entry of this.#entries.values()) {
      entry.fresh = true;
      const { owner, requestId, sampledIds, resumedAt } = entry;
      if (sampledIds.length > 0) points.push({ owner, requestId, sampledIds, resumedAt });
    }
    return points;
  }
}

const keyOf = (owner: string, requestId: string): string => `${owner}\0${requestId}`;
