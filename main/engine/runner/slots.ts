import { cancelled } from '../../common/base/errors.ts';

/**
 * `count` places for units of work, granted first come, first served. A waiter whose signal aborts is rejected with
 * `cancelled`; one that is running keeps its place until its work has settled.
 */
export function createSlots(count: number, signal: AbortSignal) {
  let free = count;
  const waiting: (() => void)[] = [];

  const acquire = async (): Promise<void> => {
    if (signal.aborted) throw cancelled();
    if (free > 0) {
      free--;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const grant = () => {
        signal.removeEventListener('abort', abort);
        resolve();
      };
      const abort = () => {
        waiting.splice(waiting.indexOf(grant), 1);
        reject(cancelled());
      };
      waiting.push(grant);
      signal.addEventListener('abort', abort, { once: true });
    });
  };
  const release = (): void => {
    const next = waiting.shift();
    if (next) next();
    else free++;
  };

  return async <T>(work: () => Promise<T>): Promise<T> => {
    await acquire();
    try {
      return await work();
    } finally {
      release();
    }
  };
}
