import { createInterface } from 'node:readline/promises';
import { followEvents, readEvents } from '../../client/follow-events.ts';
import { MassError } from '../../common/base/errors.ts';
import type { StoredEvent } from '../../common/domain/events.ts';
import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { createEventDescriber } from '../render/describe-event.ts';
import { formatTime, printable } from '../render/format.ts';
import { renderStatus } from '../render/render-status.ts';
import { renderExperiments } from '../render/render-tables.ts';

export const status = (
  context: CommandContext,
  name: string | undefined,
  cycle?: number | undefined,
): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    if (name === undefined) {
      const value = await engine.call('experiment.list', {});
      return { value, text: renderExperiments(value) };
    }
    const value = await engine.call('experiment.status', { name, ...(cycle === undefined ? {} : { cycle }) });
    return { value, text: printable(renderStatus(value)) };
  });

/** Prints as it reads: a line per event, or with --json an event object per line. */
export const log = (
  context: CommandContext,
  { name, follow, all }: { name: string; follow: boolean; all: boolean },
): Promise<CommandResult | null> =>
  withEngine(context, async (engine) => {
    const describer = createEventDescriber();
    const onEvent = (stored: StoredEvent): void => {
      const line = printable(describer.line(stored.event));
      if (!all && !describer.worthTelling(stored.event)) return;
      context.print(context.json ? JSON.stringify(stored) : `${formatTime(stored.at)} ${line}`);
    };
    const options = { experiment: name, after: 0, signal: context.interrupted, onEvent };
    if (follow) await followEvents(engine, options);
    else await readEvents(engine, options);
    return null;
  });

export interface StopOptions {
  readonly name?: string | undefined;
  readonly mode: 'after' | 'now' | null;
  /** end the engine too */
  readonly engine: boolean;
}

export async function stop(context: CommandContext, options: StopOptions): Promise<CommandResult> {
  const { name } = options;
  const target = name === undefined ? {} : { experiment: name };
  const engine = await context.connect({ start: false }).catch((error: unknown) => {
    if (error instanceof MassError && error.code === 'not_found') return null;
    throw error;
  });
  if (engine === null) return { value: { stopped: false, inFlight: [] }, text: 'No engine runs, so nothing to stop.' };
  try {
    const preview = await engine.call('engine.stop', { mode: 'preview', ...target });
    const what = `Stopping now: ${preview.lostIfNow}`;
    const mode = options.mode ?? (await askMode(context, what));
    if (mode === null) return { value: preview, text: 'Nothing stopped.' };
    const value = await engine.call(
      'engine.stop',
      { mode, shutdown: options.engine, ...target },
      { signal: context.interrupted },
    );
    const text = options.engine
      ? 'Stopped; the engine ends.'
      : value.stopped
        ? 'Stopped.'
        : 'Nothing was running, so nothing to stop.';
    return { value, text };
  } finally {
    engine.close();
  }
}

async function askMode(context: CommandContext, what: string): Promise<'after' | 'now' | null> {
  if (context.json || !process.stdin.isTTY) {
    throw new MassError('usage', `Say how to stop: --after (finish what is in flight) or --now. ${what}`);
  }
  const reader = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await reader.question(
      `${printable(what)}\nStop after the episodes in flight, now, or not at all? [after/now/no] `,
      {
        signal: context.interrupted,
      },
    );
    const word = answer.trim().toLowerCase();
    return word === 'after' || word === 'now' ? word : null;
  } finally {
    reader.close();
  }
}
