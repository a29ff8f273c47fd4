import type { MemoryPlan } from '../../common/domain/memory-plan.ts';
import type { DoctorRow, ModelSummary, PlanEstimate, ResultOf } from '../../common/protocol/engine.ts';
import { formatBytes, formatCount, table } from './format.ts';

export function renderDoctor(rows: readonly DoctorRow[]): string {
  const lines = table(
    ['state', 'what', 'detail'],
    rows.map((row) => [row.state, row.what, row.detail]),
  );
  const remedies = rows.flatMap((row) => (row.remedy === null ? [] : [`${row.what}: ${row.remedy}`]));
  return remedies.length === 0 ? lines : `${lines}\n\nTo mend:\n${remedies.map((line) => `  ${line}`).join('\n')}`;
}

export const renderModels = (models: readonly ModelSummary[]): string =>
  table(
    ['model', 'state', 'size', 'title', 'path'],
    models.map((model) => [model.id, model.state, formatBytes(model.bytes), model.title, model.path ?? '-']),
  );

export function renderMemoryPlan(plan: MemoryPlan): string {
  const parts = Object.entries(plan.parts).map(([part, bytes]) => [`  ${part}`, formatBytes(bytes)]);
  const { nearest } = plan;
  return [
    `${plan.fits ? 'Fits' : 'Does not fit'} on ${plan.device}: needs ${formatBytes(plan.neededBytes)}, ` +
      `${formatBytes(plan.freeBytes)} of ${formatBytes(plan.totalBytes)} free.`,
    `context ${formatCount(plan.contextSize)} tokens, ${plan.sequences} sequences, cache ${plan.kvType}, ${plan.gpuLayers} layers on the device`,
    table(['part', 'bytes'], parts),
    ...(nearest === null
      ? []
      : [
          `Nearest plan that fits: context ${formatCount(nearest.contextSize)}, ${nearest.sequences} sequences, ` +
            `cache ${nearest.kvType}, ${formatBytes(nearest.neededBytes)}.`,
        ]),
  ].join('\n');
}

export const renderTasks = (tasks: ResultOf<'tasks.list'>): string =>
  table(
    ['task', 'number', 'domain', 'title'],
    tasks.map((task) => [task.id, String(task.number), task.domain, task.title]),
  );

export const renderTask = (task: ResultOf<'tasks.show'>): string =>
  [`${task.id}: ${task.title}`, `folder ${task.folder}`, '', task.prompt.trimEnd(), '', task.workflow.trimEnd()].join(
    '\n',
  );

export function renderPlan(plan: PlanEstimate): string {
  const rows = plan.rows.map((row) => [
    String(row.cycle),
    row.stage,
    formatCount(row.episodes),
    formatCount(row.judgments),
    formatCount(row.proposals),
    formatCount(row.promptTokens),
    formatCount(row.generatedTokens),
    row.hours.toFixed(2),
    row.diskGB.toFixed(2),
  ]);
  return [
    table(['cycle', 'stage', 'episodes', 'judgments', 'proposals', 'prompt', 'generated', 'hours', 'GB'], rows),
    '',
    plan.measured ? 'Speed measured on this machine.' : 'Speed assumed, not yet measured on this machine.',
    ...plan.assumptions.map((line) => `  ${line}`),
  ].join('\n');
}

export const renderExperiments = (rows: ResultOf<'experiment.list'>): string =>
  rows.length === 0
    ? 'No experiment yet; create one with "mass new NAME --config FILE" or run "mass demo".'
    : table(
        ['experiment', 'state', 'model', 'created'],
        rows.map((row) => [row.name, row.state, row.model, new Date(row.createdAt).toISOString()]),
      );
