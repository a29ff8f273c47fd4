import type { AttachedEngine } from '../../client/connect-engine.ts';
import type { ParamsInputOf } from '../../common/protocol/engine.ts';
import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { exitCodes } from '../exit-codes.ts';
import { printable } from '../render/format.ts';
import { renderComparison, renderEvaluations, renderRollouts } from '../render/render-comparison.ts';
import { detached, followRun, runResult } from './run.ts';

/** Runs what a set of rollouts lacks, then prints what its runs did. */
export const rollout = (context: CommandContext, params: ParamsInputOf<'rollout.start'>): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const { name, generation, set } = params;
    const unfinished = await runToEnd(context, engine, { name, start: () => engine.call('rollout.start', params) });
    if (unfinished) return unfinished;
    const value = await engine.call('rollout.show', { name, generation, ...(set === undefined ? {} : { set }) });
    return { value, text: printable(renderRollouts(value)) };
  });

/** Judges what is not judged yet of two sets, then prints the table. */
export const compare = (context: CommandContext, params: ParamsInputOf<'compare.start'>): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const { name } = params;
    const unfinished = await runToEnd(context, engine, { name, start: () => engine.call('compare.start', params) });
    if (unfinished) return unfinished;
    const value = await engine.call('compare.show', params);
    return { value, text: printable(renderComparison(value)) };
  });

/** The sets and comparisons of an experiment. */
export const evaluations = (context: CommandContext, name: string): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('evaluation.list', { name });
    return { value, text: printable(renderEvaluations(value)) };
  });

interface Started {
  readonly name: string;
  readonly start: () => Promise<{ runId: string | null }>;
}

/** Starts a run and follows it; null when everything is done, also when nothing was left to do. */
async function runToEnd(
  context: CommandContext,
  engine: AttachedEngine,
  { name, start }: Started,
): Promise<CommandResult | null> {
  const { lastSeq } = await engine.call('engine.info', {});
  const { runId } = await start();
  if (runId === null) return null;
  const end = await followRun(context, engine, { name, runId, after: lastSeq });
  if (end === null) return detached(name, runId);
  const result = runResult(end);
  return (result.exitCode ?? exitCodes.done) === exitCodes.done ? null : result;
}
