import type { EngineConnection } from '../../client/connection.ts';
import { followEvents, readEvents } from '../../client/follow-events.ts';
import { isCancelled } from '../../common/base/errors.ts';
import { StageName } from '../../common/domain/events.ts';
import type { ResultOf } from '../../common/protocol/engine.ts';
import { ErrorDataSchema } from '../../common/protocol/error-data.ts';
import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { exitCodeOf, exitCodes } from '../exit-codes.ts';

/** The stages of this version, in the order of a cycle. */
export const cycleStages = StageName.exclude(['rollout', 'compare']).options;

export interface RunOptions {
  readonly name: string;
  readonly stages: readonly StageName[];
  readonly tasks?: readonly string[] | undefined;
  /** in order; cycle 1 when absent */
  readonly cycles?: readonly number[] | undefined;
}

/** Starts a run and follows it to its end. Ctrl-C leaves it running. */
export const run = (context: CommandContext, options: RunOptions): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const { name, stages, tasks, cycles } = options;
    const params = {
      name,
      stages: [...stages],
      ...(tasks === undefined ? {} : { tasks: [...tasks] }),
      ...(cycles === undefined ? {} : { cycles: [...cycles] }),
    };
    const { lastSeq } = await engine.call('engine.info', {});
    const { runId } = await engine.call('run.start', params);
    const end = await followRun(context, engine, { name, runId, after: lastSeq });
    return end === null ? detached(name, runId) : runResult(end);
  });

/** null: the person left before the run ended. */
export async function followRun(
  context: CommandContext,
  engine: EngineConnection,
  { name, runId, after }: { name: string; runId: string; after: number },
): Promise<ResultOf<'run.wait'> | null> {
  const { interrupted, reporter } = context;
  const stop = new AbortController();
  const events = { experiment: name, onEvent: reporter.event };
  const following = followEvents(engine, { ...events, after, signal: AbortSignal.any([stop.signal, interrupted]) });
  // A failure of the following is thrown where it is awaited; here it only must not count as unhandled.
  following.catch(() => undefined);
  try {
    const end = await engine.call('run.wait', { runId }, { signal: interrupted });
    stop.abort();
    await readEvents(engine, { ...events, after: await following, signal: interrupted }); // the last ones
    return end;
  } catch (error) {
    if (interrupted.aborted && isCancelled(error)) return null;
    throw error;
  } finally {
    stop.abort();
    reporter.end();
  }
}

export function runResult(end: ResultOf<'run.wait'>): CommandResult {
  const error = ErrorDataSchema.safeParse(end.error);
  const cause = error.success && error.data.cause ? `\nCause: ${error.data.cause}` : '';
  if (end.state === 'done') return { value: end, text: `Run done. ${end.message}`.trimEnd() };
  return {
    value: end,
    text: `Run ${end.state}. ${end.message}`.trimEnd() + cause,
    exitCode: error.success ? exitCodeOf(error.data.code) : exitCodes.failed,
  };
}

export const detached = (name: string, runId: string): CommandResult => ({
  value: { runId, state: 'running' },
  text: `The run goes on; follow it with "mass log ${name} --follow", stop it with "mass stop ${name}".`,
  exitCode: exitCodes.interrupted,
});
