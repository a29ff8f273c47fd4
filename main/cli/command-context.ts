import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { type AttachedEngine, connectEngine } from '../client/connect-engine.ts';
import { MassError } from '../common/base/errors.ts';
import type { Reporter } from './render/reporter.ts';

/** What a command prints: `value` with --json, `text` without. */
export interface CommandResult {
  readonly value: unknown;
  readonly text: string;
  readonly exitCode?: number;
}

export interface CommandContext {
  readonly dataFolder: string;
  readonly json: boolean;
  readonly reporter: Reporter;
  /** aborts at the first Ctrl-C */
  readonly interrupted: AbortSignal;
  /** @throws MassError as connectEngine */
  connect(options: { start: boolean }): Promise<AttachedEngine>;
  /** writes a line of result at once, for commands that stream */
  print(line: string): void;
}

/** --data, then MASS_DATA, then the XDG data folder. */
export function dataFolderOf(option: string | undefined, env: NodeJS.ProcessEnv = process.env): string {
  const chosen = option ?? env['MASS_DATA'];
  if (chosen === '') throw new MassError('usage', 'The data folder is empty; name one with --data DIR.');
  return resolve(chosen ?? join(env['XDG_DATA_HOME'] || join(homedir(), '.local', 'share'), 'mass-lab'));
}

/** Runs `use` with a connection, starting an engine when none runs, and closes the connection. */
export async function withEngine<T>(context: CommandContext, use: (engine: AttachedEngine) => Promise<T>): Promise<T> {
  const engine = await context.connect({ start: true });
  try {
    return await use(engine);
  } finally {
    engine.close();
  }
}

export const connectTo = (dataFolder: string, start: boolean): Promise<AttachedEngine> =>
  // MASS_ENGINE_ENTRY: another engine program, for tests of the command line alone.
  connectEngine({ dataFolder, start, entry: process.env['MASS_ENGINE_ENTRY'] });
