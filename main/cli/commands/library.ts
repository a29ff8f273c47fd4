import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { exitCodes } from '../exit-codes.ts';
import { formatBytes } from '../render/format.ts';
import {
  renderDoctor,
  renderMemoryPlan,
  renderModels,
  renderPlan,
  renderTask,
  renderTasks,
} from '../render/render-tables.ts';

/** Commands that ask one thing and print the answer. */

export const doctor = (context: CommandContext, repair: boolean): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('doctor.run', { repair }, calling(context));
    const missing = value.some((row) => row.state === 'missing');
    return { value, text: renderDoctor(value), exitCode: missing ? exitCodes.failed : exitCodes.done };
  });

export const modelsList = (context: CommandContext): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('models.list', {}, calling(context));
    return { value, text: renderModels(value) };
  });

export const modelsAdd = (context: CommandContext, path: string, id: string | undefined): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const params = { path: resolve(path), ...(id === undefined ? {} : { id }) };
    const value = await engine.call('models.add', params, calling(context));
    return { value, text: renderModels([value]) };
  });

export const modelsFetch = (context: CommandContext, id: string): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    // The engine outlives this command and is given no secrets but with the call that needs one.
    const token = process.env['HF_TOKEN'];
    const value = await engine.call('models.fetch', { id, ...(token ? { token } : {}) }, calling(context));
    return { value, text: renderModels([value]) };
  });

export const modelsPlan = (
  context: CommandContext,
  params: { id: string; contextSize?: number; sequences?: number },
): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('models.plan', params, calling(context));
    return { value, text: renderMemoryPlan(value), exitCode: value.fits ? exitCodes.done : exitCodes.failed };
  });

export const tasksList = (context: CommandContext): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('tasks.list', {}, calling(context));
    return { value, text: renderTasks(value) };
  });

export const tasksShow = (context: CommandContext, id: string): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('tasks.show', { id }, calling(context));
    return { value, text: renderTask(value) };
  });

export async function create(context: CommandContext, name: string, file: string): Promise<CommandResult> {
  const config = await readConfig(file);
  return await withEngine(context, async (engine) => {
    const value = await engine.call('experiment.create', { name, config }, calling(context));
    const text = value.created
      ? `Experiment "${name}" created.`
      : `Experiment "${name}" exists with this configuration.`;
    return { value, text };
  });
}

async function readConfig(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8'));
  } catch (cause) {
    throw new MassError('invalid_input', `${file} cannot be read as JSON; name a configuration file.`, { cause });
  }
}

export const plan = (context: CommandContext, name: string, cycles?: readonly number[]): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const params = { name, ...(cycles === undefined ? {} : { cycles: [...cycles] }) };
    const value = await engine.call('experiment.plan', params, calling(context));
    return { value, text: renderPlan(value) };
  });

export const prune = (context: CommandContext, name: string, dryRun: boolean): Promise<CommandResult> =>
  withEngine(context, async (engine) => {
    const value = await engine.call('experiment.prune', { name, dryRun }, calling(context));
    const text = dryRun
      ? `Would remove ${value.attempts} workspaces and keep ${value.kept}.`
      : `Removed ${value.attempts} workspaces (${formatBytes(value.bytes)}), kept ${value.kept}.`;
    return { value, text };
  });

const calling = ({ interrupted, reporter }: CommandContext) => ({
  signal: interrupted,
  onProgress: reporter.progress,
});
