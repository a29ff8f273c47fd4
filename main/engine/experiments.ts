import { MassError } from '../common/base/errors.ts';
import { ExperimentConfig } from '../common/domain/config.ts';
import type { DomainEvent } from '../common/domain/events.ts';
import { parseWith } from '../common/domain/parse-with.ts';
import type { Task } from '../common/domain/task.ts';
import { canonicalJson, sha256 } from '../node/hashing.ts';
import { newId } from '../node/ids.ts';
import type { ExperimentRow } from './store/repositories/experiments.ts';
import type { Store } from './store/store.ts';
import { readTaskLibrary } from './tasks/task-library.ts';

export interface Experiment extends ExperimentRow {
  readonly config: ExperimentConfig;
}

/** Errors: `not_found` naming the experiments there are. */
export function requireExperiment(store: Store, name: string): Experiment {
  const row = store.experiments.byName(name);
  if (row) return { ...row, config: ExperimentConfig.parse(JSON.parse(row.configJson)) };
  const known = store.experiments.all().map((other) => other.name);
  throw new MassError(
    'not_found',
    known.length === 0
      ? `There is no experiment "${name}"; create one with: mass new ${name} --config FILE`
      : `There is no experiment "${name}"; there are: ${known.join(', ')}.`,
  );
}

/**
 * Creates an experiment and freezes its configuration, tasks and model by content. Asking again with the same
 * configuration finds it; a different one is refused with the differences. Errors: `invalid_input`, `conflict`,
 * `not_found` (a task or model that is not there).
 */
export async function createExperiment(
  store: Store,
  { name, config: input, massVersion }: { name: string; config: unknown; massVersion: string },
): Promise<{ experimentId: string; created: boolean }> {
  const config = parseWith(ExperimentConfig, input, `The configuration of "${name}"`);
  const configJson = canonicalJson(config);
  const known = store.experiments.byName(name);
  if (known) {
    refuseDifference(known, configJson);
    return { experimentId: known.experimentId, created: false };
  }
  refuseShortContext(config);
  const model = store.models.byId(config.model.id);
  if (!model)
    throw new MassError(
      'not_found',
      `The model "${config.model.id}" is not on this machine; fetch it with: mass models fetch ${config.model.id}`,
    );
  const library = await readTaskLibrary(config.tasks.library);
  const tasks = [
    ...config.tasks.train.map((id) => ({ id, split: 'train' as const })),
    ...config.tasks.test.map((id) => ({ id, split: 'test' as const })),
  ].map(({ id, split }) => ({ split, task: findTask(library, id) }));
  const experimentId = newId('ex');
  store.appendWith(() => [
    { type: 'experiment.created', experimentId, name, configJson, configHash: sha256(configJson), massVersion },
    {
      type: 'generation.registered',
      generationId: newId('gn'),
      experimentId,
      number: 0,
      modelId: model.modelId,
      modelSha256: model.sha256,
      parentGenerationId: null,
      adapterSha256: null,
    },
    ...tasks.map(({ task, split }): DomainEvent => taskEvent(store, experimentId, { task, split })),
  ]);
  return { experimentId, created: true };
}

/** Calls that no prompt would fit beside: refused before any episode is spent on finding that out. */
function refuseShortContext({ model, executor, search, judging }: ExperimentConfig): void {
  const calls = [
    ...(search.updates > 0 ? [['search.callTokens', search.callTokens] as const] : []),
    ['judging.callTokens', judging.callTokens] as const,
  ];
  for (const [field, tokens] of calls) {
    if (tokens + executor.contextSafety < model.contextSize) continue;
    throw new MassError(
      'invalid_input',
      `${field} (${tokens}) and executor.contextSafety (${executor.contextSafety}) leave nothing of model.contextSize (${model.contextSize}) for a prompt; lower them or raise it.`,
    );
  }
}

function taskEvent(
  store: Store,
  experimentId: string,
  { task, split }: { task: Task; split: 'train' | 'test' },
): DomainEvent {
  const { id, number, title, domain } = task.manifest;
  return {
    type: 'task.registered',
    experimentId,
    taskId: id,
    number,
    title,
    domain,
    split,
    contentHash: task.contentHash,
    manifestHash: store.artifacts.putJson(task.manifest),
    promptHash: store.artifacts.put(task.barePrompt),
    folder: task.folder,
  };
}

function findTask(library: readonly Task[], id: string): Task {
  const task = library.find((candidate) => candidate.manifest.id === id);
  if (task) return task;
  throw new MassError(
    'not_found',
    `The task library has no task "${id}"; it has: ${library.map((other) => other.manifest.id).join(', ')}.`,
  );
}

function refuseDifference(known: ExperimentRow, configJson: string): void {
  if (known.configJson === configJson) return;
  const differences = differingPaths(JSON.parse(known.configJson), JSON.parse(configJson));
  throw new MassError(
    'conflict',
    `"${known.name}" exists with another configuration (${differences.slice(0, 3).join('; ')}${differences.length > 3 ? `; and ${differences.length - 3} more` : ''}); a configuration is frozen, so use a new name.`,
    { details: { differences } },
  );
}

/** "search.updates: 11 -> 2" for every leaf that differs. */
export function differingPaths(before: unknown, after: unknown, path = ''): string[] {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  if (isRecord(before) && isRecord(after)) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
    return keys.flatMap((key) => differingPaths(before[key], after[key], path === '' ? key : `${path}.${key}`));
  }
  return [`${path}: ${JSON.stringify(before)} -> ${JSON.stringify(after)}`];
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
