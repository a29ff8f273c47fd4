import { cancelled } from '../../common/base/errors.ts';
import type { DeviceLease } from './lease.ts';

export interface DeviceClaim {
  /** names the holder */
  readonly label: string;
  readonly signal: AbortSignal;
  /** true: what has not begun shall not begin */
  readonly draining?: () => boolean;
}

const pollMs = 200;

/**
 * Keeps the device for `work`, as `lease.exclusive`. Aborting or draining ends the wait for it; work that has begun is not
 * abandoned: it sees both itself, and the device is given back when it has settled. Errors: `cancelled`.
 */
export async function withDevice<R>(
  lease: Pick<DeviceLease<never>, 'exclusive'>,
  { label, signal, draining = () => false }: DeviceClaim,
  work: () => Promise<R>,
): Promise<R> {
  const unwanted = (): boolean => signal.aborted || draining();
  const givenUp = () => cancelled('Waiting for the device was ended.');
  if (unwanted()) throw givenUp();
  let begun = false;
  const worked = lease.exclusive(label, () => {
    begun = true;
    return unwanted() ? Promise.reject(givenUp()) : work();
  });
  worked.catch(() => undefined); // after giving up nobody waits for it
  let poll: NodeJS.Timeout | undefined;
  const waitedInVain = new Promise<never>((_resolve, reject) => {
    poll = setInterval(() => {
      if (begun) clearInterval(poll);
      else if (unwanted()) reject(givenUp());
    }, pollMs);
  });
  try {
    return await Promise.race([worked, waitedInVain]);
  } finally {
    clearInterval(poll);
  }
}
