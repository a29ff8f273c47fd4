import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { AttachedEngine } from '../../client/connect-engine.ts';
import type { ResultOf } from '../../common/protocol/engine.ts';
import { resourcePath } from '../../node/project-root.ts';
import type { CommandContext, CommandResult } from '../command-context.ts';
import { exitCodes } from '../exit-codes.ts';
import { printable } from '../render/format.ts';
import { renderComparison } from '../render/render-comparison.ts';
import { renderStatus } from '../render/render-status.ts';
import { cycleStages, detached, followRun, runResult } from './run.ts';

const Demo = z.object({
  name: z.string(),
  config: z.looseObject({ model: z.looseObject({ id: z.string() }) }),
  /** bare-prompt runs of each task and generation, for the comparison at the end */
  rollouts: z.number().int().min(1),
});
type Demo = z.infer<typeof Demo>;

/**
 * A whole small cycle on a small real model, from search to a trained L1, then L1 and L0 side by side. Run again, it
 * resumes, or shows what is done.
 */
export async function demo(context: CommandContext): Promise<CommandResult> {
  const given = Demo.parse(JSON.parse(await readFile(resourcePath('configs/demo.json'), 'utf8')));
  const { name, config } = given;
  const { reporter, interrupted } = context;
  const engine = await context.connect({ start: true });
  let outcome: Outcome | null = null;
  try {
    await engine.call('models.fetch', { id: config.model.id }, { signal: interrupted, onProgress: reporter.progress });
    reporter.end();
    await engine.call('experiment.create', { name, config }, { signal: interrupted });
    outcome = await runPhases(context, engine, given);
    if (outcome.left !== null) return detached(name, outcome.left);
    return await report(context, engine, { given, end: outcome.end });
  } finally {
    const leftRunning = outcome !== null && outcome.left !== null;
    if (engine.started && !leftRunning) await engine.call('engine.stop', { mode: 'now', shutdown: true });
    engine.close();
  }
}

type RunEnd = ResultOf<'run.wait'>;
/** `left`: the run that goes on because the person left; `end`: that of the last run, null when nothing was left to do. */
type Outcome = { readonly left: string } | { readonly left: null; readonly end: RunEnd | null };

/** One run after another; a run that an earlier call of the demo left going is joined first. */
async function runPhases(context: CommandContext, engine: AttachedEngine, given: Demo): Promise<Outcome> {
  const { name, rollouts: count } = given;
  const phases: (() => Promise<{ runId: string | null }>)[] = [
    async () => ({ runId: await activeRun(engine, name) }),
    () => engine.call('run.start', { name, stages: [...cycleStages] }),
    () => engine.call('rollout.start', { name, generation: 0, count }),
    () => engine.call('rollout.start', { name, generation: 1, count }),
    () => engine.call('compare.start', { name, first: 1, second: 0 }),
  ];
  let end: RunEnd | null = null;
  for (const start of phases) {
    const { lastSeq } = await engine.call('engine.info', {});
    const { runId } = await start();
    if (runId === null) continue;
    end = await followRun(context, engine, { name, runId, after: lastSeq });
    if (end === null) return { left: runId };
    if (end.state !== 'done') break;
  }
  return { left: null, end };
}

async function activeRun(engine: AttachedEngine, name: string): Promise<string | null> {
  const { activeRuns } = await engine.call('engine.info', {});
  return activeRuns.find((run) => run.experiment === name)?.runId ?? null;
}

async function report(
  { dataFolder }: CommandContext,
  engine: AttachedEngine,
  { given: { name }, end }: { given: Demo; end: RunEnd | null },
): Promise<CommandResult> {
  const status = await engine.call('experiment.status', { name });
  const result: CommandResult = end === null ? { value: null, text: '' } : runResult(end);
  const exitCode = result.exitCode ?? exitCodes.done;
  const finished = exitCode === exitCodes.done;
  const comparison = finished ? await engine.call('compare.show', { name, first: 1, second: 0 }) : null;
  const text = [
    printable(renderStatus(status)),
    ...(comparison ? [printable(renderComparison(comparison))] : []),
    closing(dataFolder),
    ...(result.text === '' ? [] : [result.text]),
  ].join('\n\n');
  return { value: { run: end, status, comparison }, text, exitCode };
}

const closing = (dataFolder: string): string =>
  [
    `Everything lies in ${dataFolder}: workspaces in ${join(dataFolder, 'workspaces')}, logs in ${join(dataFolder, 'logs')}.`,
    'A model of 135 million parameters does poor work, and a dozen steps on a few of its runs teach it next to nothing:',
    'the demo shows the way of the cycle, not its worth. Other things set for its size, never for a real experiment:',
    'requireProvenWin false (tasks without a proven win supply data too), integrity.quarantine false and all gates off',
    '(the work of so small a model nearly always has findings; its runs are selected all the same).',
  ].join('\n');
