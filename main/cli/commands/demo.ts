import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { AttachedEngine } from '../../client/connect-engine.ts';
import { resourcePath } from '../../node/project-root.ts';
import type { CommandContext, CommandResult } from '../command-context.ts';
import { exitCodes } from '../exit-codes.ts';
import { printable } from '../render/format.ts';
import { renderStatus } from '../render/render-status.ts';
import { cycleStages, detached, followRun, runResult } from './run.ts';

const Demo = z.object({ name: z.string(), config: z.looseObject({ model: z.looseObject({ id: z.string() }) }) });

/** A whole small cycle on a small real model. Run again, it resumes, or shows what is done. */
export async function demo(context: CommandContext): Promise<CommandResult> {
  const { name, config } = Demo.parse(JSON.parse(await readFile(resourcePath('configs/demo.json'), 'utf8')));
  const { reporter, interrupted } = context;
  const engine = await context.connect({ start: true });
  let detachedFromRun = false;
  try {
    await engine.call('models.fetch', { id: config.model.id }, { signal: interrupted, onProgress: reporter.progress });
    reporter.end();
    await engine.call('experiment.create', { name, config }, { signal: interrupted });
    const runId = await startOrJoin(engine, name);
    const { lastSeq } = await engine.call('engine.info', {});
    const end = await followRun(context, engine, { name, runId, after: lastSeq });
    if (end === null) {
      detachedFromRun = true;
      return detached(name, runId);
    }
    const status = await engine.call('experiment.status', { name });
    const result = runResult(end);
    const text = [printable(renderStatus(status)), '', closing(context.dataFolder), '', result.text].join('\n');
    return { value: { run: end, status }, text, exitCode: result.exitCode ?? exitCodes.done };
  } finally {
    if (engine.started && !detachedFromRun) await engine.call('engine.stop', { mode: 'now', shutdown: true });
    engine.close();
  }
}

async function startOrJoin(engine: AttachedEngine, name: string): Promise<string> {
  const { activeRuns } = await engine.call('engine.info', {});
  const active = activeRuns.find((run) => run.experiment === name);
  if (active !== undefined) return active.runId;
  return (await engine.call('run.start', { name, stages: [...cycleStages] })).runId;
}

const closing = (dataFolder: string): string =>
  [
    `Everything lies in ${dataFolder}: workspaces in ${join(dataFolder, 'workspaces')}, logs in ${join(dataFolder, 'logs')}.`,
    'A model of 135 million parameters does poor work; the demo shows the way of the cycle, not its worth.',
    'requireProvenWin is false here, so tasks without a proven win supply data too.',
    'integrity.quarantine and all gates are off here: the work of so small a model nearly always has findings, and its runs are selected all the same.',
  ].join('\n');
