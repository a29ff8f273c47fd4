import { MassError } from '../common/base/errors.ts';

const codes = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'SQLITE_FULL']);
const prefixes = ['SQLITE_IOERR', 'SQLITE_READONLY'];

/**
 * The error of a full or failing disk in words that say what to do; null for any other error. SQLite's and the system's
 * own words do not.
 */
export function diskError(cause: unknown): MassError | null {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  return codes.has(code) || prefixes.some((prefix) => code.startsWith(prefix)) ? diskFull({ code, cause }) : null;
}

export const diskFull = ({ code = 'ENOSPC', cause }: { code?: string; cause?: unknown }): MassError =>
  new MassError(
    'prerequisite',
    'The disk of the data folder is full or failing; free space, then run again. Everything finished so far is kept.',
    { details: { disk: true, code }, ...(cause === undefined ? {} : { cause }) },
  );

/** Whether an error, in words already, tells of such a disk. */
export const isDiskError = (error: unknown): boolean => error instanceof MassError && error.details?.['disk'] === true;

/** Less than this, in bytes, is a full disk: not even a report can be written. */
export const leastFreeBytes = 1 << 20;
