import { resolve } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { ParamsInputOf } from '../../common/protocol/engine.ts';
import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { exitCodes } from '../exit-codes.ts';
import { printable } from '../render/format.ts';
import { renderExport, renderMerged } from '../render/render-export.ts';
import { detached, followRun, runResult } from './run.ts';

export interface ExportGiven {
  readonly cycle?: number;
  readonly checkpoint?: number;
  readonly note?: string;
  readonly merge?: boolean;
  readonly type?: ParamsInputOf<'export.merge'>['type'];
  readonly out?: string;
}

/** Makes the cycle's generation, of a person's checkpoint where one is named; or merges the one there is. */
export async function exportGeneration(
  context: CommandContext,
  name: string,
  given: ExportGiven,
): Promise<CommandResult> {
  refuseMixture(given);
  const { cycle = 1, type, out } = given;
  if (given.merge && out !== undefined) {
    const params = { name, cycle, out: resolve(out), ...(type === undefined ? {} : { type }) };
    return await withEngine(context, async (engine) => {
      const { interrupted: signal, reporter } = context;
      const value = await engine.call('export.merge', params, { signal, onProgress: reporter.progress });
      return { value, text: printable(renderMerged(value)) };
    });
  }
  return await exportStage(context, name, { ...given, cycle });
}

function refuseMixture({ merge, type, out, checkpoint, note }: ExportGiven): void {
  if (merge && out === undefined) throw new MassError('usage', 'Name the folder to merge into: --merge --out FOLDER.');
  if (merge && checkpoint !== undefined)
    throw new MassError(
      'usage',
      'A registered generation is merged; --checkpoint belongs to an export without --merge.',
    );
  if (!merge && (type !== undefined || out !== undefined))
    throw new MassError('usage', '--type and --out belong to a merged model: add --merge.');
  if (checkpoint === undefined && note !== undefined)
    throw new MassError('usage', 'A note belongs to a choice: --checkpoint STEP.');
}

const exportStage = (
  context: CommandContext,
  name: string,
  { cycle, checkpoint, note }: ExportGiven & { readonly cycle: number },
): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const choice = { name, cycle, ...(note === undefined ? {} : { note }) };
    if (checkpoint !== undefined) await engine.call('export.choose', { ...choice, step: checkpoint });
    const { lastSeq } = await engine.call('engine.info', {});
    const { runId } = await engine.call('run.start', { name, stages: ['export'], cycles: [cycle] });
    const end = await followRun(context, engine, { name, runId, after: lastSeq });
    if (end === null) return detached(name, runId);
    const result = runResult(end);
    if ((result.exitCode ?? exitCodes.done) !== exitCodes.done) return result;
    const report = await engine.call('export.show', { name, cycle });
    return { value: { run: end, export: report }, text: `${result.text}\n\n${printable(renderExport(report))}` };
  });
