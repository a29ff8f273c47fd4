import { MassError } from '../../common/base/errors.ts';
import { ChildEnded } from './inference-child.ts';

export interface RestartPolicy {
  /** this many crashes ... */
  readonly crashes: number;
  /** ... within this time are one too many */
  readonly windowMs: number;
  /** wait before the first restart; doubled for each further crash in the window, at most 10 s */
  readonly backoffMs: number;
}

export const defaultRestarts: RestartPolicy = { crashes: 5, windowMs: 600_000, backoffMs: 250 };

/** Decides whether a process that ended is started again. */
export class CrashBudget {
  readonly #policy: RestartPolicy;
  #times: number[] = [];

  constructor(policy: RestartPolicy = defaultRestarts) {
    this.#policy = policy;
  }

  /**
   * Null: start it again. A crash is tried again within the budget. An error the process reported itself is final, unless
   * it had served before (`retryAny`): the memory of a dead process may take a moment to be free.
   */
  count(error: unknown, { retryAny }: { retryAny: boolean }): MassError | null {
    if (!(error instanceof ChildEnded) && !retryAny) return asMassError(error);
    const now = Date.now();
    this.#times = [...this.#times.filter((time) => now - time < this.#policy.windowMs), now];
    if (this.#times.length < this.#policy.crashes) return null;
    if (!(error instanceof ChildEnded)) return asMassError(error);
    const minutes = Math.ceil(this.#policy.windowMs / 60_000);
    return new MassError(
      'infrastructure',
      `The inference process crashed ${this.#times.length} times within ${minutes} minutes and is not started again: ${error.message}`,
      { details: { crashes: this.#times.length } },
    );
  }

  get backoffMs(): number {
    return Math.min(10_000, this.#policy.backoffMs * 2 ** Math.max(0, this.#times.length - 1));
  }
}

const asMassError = (error: unknown): MassError =>
  error instanceof MassError
    ? error
    : new MassError('internal', `The inference process could not be supervised: ${String(error)}`, { cause: error });
