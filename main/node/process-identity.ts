import { readFileSync } from 'node:fs';

/**
 * Tells one process from a later one with the same pid: boot id and start time (clock ticks since boot, field 22 of
 * /proc/<pid>/stat). "" where /proc does not exist: then only the pid counts. null when no such process lives.
 */
export function processIdentity(pid: number): string | null {
  if (!isPidAlive(pid)) return null;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The command name, in parentheses, may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state, startTicks] = [fields[0], fields[19]];
    if (state === 'Z' || state === 'X' || startTicks === undefined) return null;
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()}:${startTicks}`;
  } catch {
    return isPidAlive(pid) ? '' : null; // no /proc on this system, or the process ended in between
  }
}

/** Whether the process that had `identity` when it was recorded still lives. */
export function isSameProcess(pid: number, identity: string): boolean {
  const now = processIdentity(pid);
  return now !== null && (now === identity || now === '' || identity === '');
}

function isPidAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'; // lives, but belongs to someone else
  }
}
