import { MassError } from '../../common/base/errors.ts';
import type { ParamsInputOf } from '../../common/protocol/engine.ts';
import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { printable } from '../render/format.ts';
import { renderFindings, renderGates } from '../render/render-integrity.ts';

export interface FindingsOptions {
  readonly name: string;
  readonly clear?: string[] | undefined;
  readonly uphold?: string[] | undefined;
  readonly note?: string | undefined;
}

/** Lists findings; with ids to clear or uphold, decides those and lists them alone. */
export async function findings(context: CommandContext, options: FindingsOptions): Promise<CommandResult> {
  const { name, clear, uphold, note } = options;
  const ids = clear ?? uphold;
  if (ids === undefined && note !== undefined)
    throw new MassError('usage', 'A note belongs to a decision: --clear ID or --uphold ID.');
  return await withEngine(context, async (engine) => {
    if (ids === undefined) {
      const value = await engine.call('findings.list', { name });
      return { value, text: printable(renderFindings(value)) };
    }
    const decision = clear === undefined ? 'upheld' : 'cleared';
    const value = await engine.call('findings.decide', { name, findings: ids, decision, note });
    const late = [...new Set(value.filter((finding) => finding.selected).map((finding) => finding.taskId))];
    const warning =
      late.length === 0
        ? ''
        : `\n\nThe selection of ${late.join(', ')} is made and stays as it is; this decision is recorded.`;
    return { value, text: printable(renderFindings(value)) + warning };
  });
}

export const gates = (context: CommandContext, name: string): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('gates.list', { name });
    return { value, text: printable(renderGates(value)) };
  });

export const decideGate = (context: CommandContext, params: ParamsInputOf<'gates.decide'>): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('gates.decide', params);
    const next = value.state === 'approved' ? ` Go on with: mass run ${params.name}` : '';
    return { value, text: `Gate ${value.kind} ${value.state}.${next}` };
  });
