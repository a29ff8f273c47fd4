import { InvalidArgumentError, Option } from 'commander';

/** How the words of the command line become values. A wrong word is a usage error. */

export function positiveInteger(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError('A whole number above 0 is needed.');
  return value;
}

export function taskList(text: string): string[] {
  const ids = text.split(',').map((id) => id.trim());
  if (ids.some((id) => id === '')) throw new InvalidArgumentError('Task ids, separated by commas, are needed.');
  return ids;
}

/** "L1", "l1" or "1" -> 1 */
export function generationNumber(text: string): number {
  const match = /^L?(\d{1,3})$/i.exec(text);
  if (!match) throw new InvalidArgumentError('A generation is named L0, L1, L2.');
  return Number(match[1]);
}

export const cycleOptions = {
  cycles: () => new Option('--cycles <n>', 'cycles 1 to n, one after another').argParser(positiveInteger),
  cycle: () => new Option('--cycle <n>', 'only this cycle').argParser(positiveInteger).conflicts('cycles'),
};

/** `--cycles 2` -> [1, 2], `--cycle 2` -> [2], neither -> undefined */
export function cyclesOf({
  cycles,
  cycle,
}: {
  readonly cycles?: number;
  readonly cycle?: number;
}): number[] | undefined {
  if (cycles !== undefined) return Array.from({ length: cycles }, (_, i) => i + 1);
  return cycle === undefined ? undefined : [cycle];
}

export const inspectOption = () =>
  new Option(
    '--inspect [episode]',
    'render nothing: show what an episode (<task>/<run>) will train; without a name, list them',
  ).conflicts('tasks');

export const inspectExamples = `  mass render first --inspect
  mass render first --inspect drug-safety/3 | less
  FORCE_COLOR=1 mass render first --inspect drug-safety/3 | less -R`;
