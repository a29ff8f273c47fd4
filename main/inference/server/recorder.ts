import { MassError } from '../../common/base/errors.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';

interface Pending {
  resolve(): void;
  reject(error: Error): void;
}

/** Sends records to the engine and waits until it says that they are stored. */
export class Recorder {
  readonly #send: (record: CompletionRecord) => Promise<void>;
  readonly #pending = new Map<string, Pending>();

  constructor(send: (record: CompletionRecord) => Promise<void>) {
    this.#send = send;
  }

  /** Errors: MassError infrastructure when the engine could not store the record. */
  async record(record: CompletionRecord): Promise<void> {
    const stored = new Promise<void>((resolve, reject) => {
      this.#pending.set(record.completionId, { resolve, reject });
    });
    try {
      await Promise.all([this.#send(record), stored]);
    } finally {
      this.#pending.delete(record.completionId);
    }
  }

  /** `error` null: stored. */
  settle(completionId: string, error: { readonly message: string } | null): void {
    const pending = this.#pending.get(completionId);
    if (error === null) pending?.resolve();
    else pending?.reject(new MassError('infrastructure', `The completion could not be recorded: ${error.message}`));
  }
}
