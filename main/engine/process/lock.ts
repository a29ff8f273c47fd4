import { linkSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { MassError } from '../../common/base/errors.ts';
import { writeFileAtomic } from '../../node/atomic-file.ts';
import { newId } from '../../node/ids.ts';
import { isSameProcess, processIdentity } from '../../node/process-identity.ts';

const Owner = z.object({ pid: z.number().int().positive(), identity: z.string(), released: z.boolean() });
type Owner = z.infer<typeof Owner>;

export interface DataFolderLock {
  release(): void;
}

const mostTries = 1000;

/**
 * Makes this process the only engine of a data folder.
 *
 * The lock is the highest-numbered file of `<data>/lock`. To take it, link a complete file under the next number,
 * which fails when another contender has it, then look again: a higher number means that a slow contender came from
 * the past. Only files below the highest are ever deleted, so numbers never go down and one contender wins.
 *
 * @throws MassError `conflict` when a living process owns the folder.
 */
export function lockDataFolder(dataFolder: string): DataFolderLock {
  const folder = join(dataFolder, 'lock');
  mkdirSync(folder, { recursive: true });
  const mine: Owner = { pid: process.pid, identity: processIdentity(process.pid) ?? '', released: false };
  const draft = join(folder, `${newId('draft')}.tmp`);
  writeFileAtomic(draft, JSON.stringify(mine));
  try {
    for (let attempt = 0; attempt < mostTries; attempt++) {
      const highest = highestNumber(folder);
      refuseWhileOwned(folder, highest, dataFolder);
      const number = highest + 1;
      if (!linked(draft, numbered(folder, number))) continue;
      if (highestNumber(folder) !== number) {
        rmSync(numbered(folder, number), { force: true });
        continue;
      }
      removeBelow(folder, number);
      return { release: () => writeFileAtomic(numbered(folder, number), JSON.stringify({ ...mine, released: true })) };
    }
  } finally {
    rmSync(draft, { force: true });
  }
  throw new MassError('conflict', `The lock of ${dataFolder} keeps changing hands; try again in a moment.`);
}

function refuseWhileOwned(folder: string, number: number, dataFolder: string): void {
  const owner = readOwner(numbered(folder, number));
  if (owner === null || owner.released || !isSameProcess(owner.pid, owner.identity)) return;
  throw new MassError(
    'conflict',
    `An engine (pid ${owner.pid}) already uses ${dataFolder}; attach to it, or end it with "mass stop --engine --now".`,
    { details: { pid: owner.pid, dataFolder } },
  );
}

/** null: nobody. Files appear complete, so one that does not parse is damage, not a lock being written. */
function readOwner(path: string): Owner | null {
  try {
    return Owner.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    return null;
  }
}

function linked(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw new MassError(
      'infrastructure',
      `${to} cannot be made; the data folder needs a file system with hard links.`,
      {
        cause: error,
      },
    );
  }
}

const numbered = (folder: string, number: number): string => join(folder, `${number}.json`);
const numbers = (folder: string): number[] =>
  readdirSync(folder).flatMap((name) => (/^\d{1,15}\.json$/.test(name) ? [Number.parseInt(name, 10)] : []));
const highestNumber = (folder: string): number => Math.max(0, ...numbers(folder));

function removeBelow(folder: string, number: number): void {
  for (const lower of numbers(folder)) if (lower < number) rmSync(numbered(folder, lower), { force: true });
}
