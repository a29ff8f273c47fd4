import { cancelled } from '../../common/base/errors.ts';
import type { DeviceLease } from './lease.ts';

export interface DeviceClaim {
  /** names the holder */
  readonly label: string;
  readonly signal: AbortSignal;
}

/**
 * Keeps the device for `work`, as `lease.exclusive`. Aborting ends the wait for it at once; work that has begun is not
 * abandoned: it sees the signal itself, and the device is given back when it has settled. Errors: `cancelled`.
 */
export async function withDevice<R>(
  lease: Pick<DeviceLease<never>, 'exclusive'>,
  { label, signal }: DeviceClaim,
  work: () => Promise<R>,
): Promise<R> {
  if (signal.aborted) throw cancelled();
  let begun = false;
  let abort: () => void = () => undefined;
  const givenUp = new Promise<never>((_resolve, reject) => {
    abort = () => {
      if (!begun) reject(cancelled('Waiting for the device was ended.'));
    };
  });
  signal.addEventListener('abort', abort, { once: true });
  const worked = lease.exclusive(label, () => {
    begun = true;
    return signal.aborted ? Promise.reject(cancelled()) : work();
  });
  worked.catch(() => undefined); // after giving up nobody waits for it
  try {
    return await Promise.race([worked, givenUp]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
