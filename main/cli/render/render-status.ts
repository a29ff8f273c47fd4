import type { ExperimentStatus, TaskProgress } from '../../common/protocol/engine.ts';
import type { FindingCounts } from '../../common/protocol/integrity.ts';
import type { TrainingProgress } from '../../common/protocol/training.ts';
import { formatBytes, formatCount, formatSeconds, table } from './format.ts';

const list = (title: string, lines: readonly string[]): string[] =>
  lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)];

/** The state of one experiment as a page of text. */
export function renderStatus(status: ExperimentStatus): string {
  const { tokens } = status;
  return [
    `${status.name}, cycle ${status.cycle}: ${status.state}${status.message ? `. ${status.message}` : ''}`,
    `model ${status.model}, sandbox ${status.sandbox}, configuration ${status.configHash.slice(0, 12)}`,
    '',
    table(
      ['stage', 'state', 'done', 'planned', ''],
      status.stages.map((row) => [row.stage, row.state, String(row.done), String(row.planned), row.message]),
    ),
    ...status.tasks.flatMap((task) => ['', ...renderTask(task)]),
    '',
    `tokens   ${formatCount(tokens.evaluatedPrompt)} prompt evaluated, ${formatCount(tokens.cachedPrompt)} reused, ` +
      `${formatCount(tokens.generated)} generated, ${formatCount(tokens.ledgerMisses)} ledger misses`,
    `time     ${formatSeconds(status.seconds)}${status.etaSeconds === null ? '' : `, about ${formatSeconds(status.etaSeconds)} left`}`,
    `disk     ${formatBytes(status.bytesOnDisk)}`,
    `device   ${status.lease ?? 'free'}`,
    ...trainingLines(status.training),
    ...findingsLine(status.findings),
    ...list(
      'Open gates',
      status.gates.map((gate) => `cycle ${gate.cycle} ${gate.kind}: ${gate.message}`),
    ),
    ...list('Notices', status.notices),
    ...list('Failures, newest first', status.failures),
  ].join('\n');
}

function renderTask(task: TaskProgress): string[] {
  const versions = task.versions.map((row) => [`  v${row.version}`, row.author, row.status, row.verdict]);
  const ratings = task.ratings.map((row) => [
    `  ${row.rank}`,
    String(row.run),
    row.score.toFixed(3),
    row.standardError === null ? '-' : row.standardError.toFixed(3),
    row.decision ?? (row.standing === 'free' ? '-' : 'quarantined'),
    countsText(row.findings),
  ]);
  const anyFinding = task.ratings.some((row) => countsText(row.findings) !== '');
  return [
    `${task.taskId} (${task.split})${task.excluded === null ? '' : `, excluded: ${task.excluded}`}`,
    ...(versions.length === 0 ? [] : [table(['  workflow', 'author', 'status', 'verdict'], versions)]),
    `  champion ${championText(task)}; collected ${task.collected} of ${task.collectPlanned}; ` +
      `matches ${task.matches} of ${task.matchesPlanned}${task.flagged ? '; flagged: the fits disagree' : ''}`,
    ...(ratings.length === 0
      ? []
      : [table(['  rank', 'run', 'score', 'error', 'selection', anyFinding ? 'findings' : ''], ratings)]),
  ];
}

const countsText = (counts: FindingCounts): string =>
  (['open', 'upheld', 'cleared'] as const)
    .flatMap((state) => (counts[state] === 0 ? [] : [`${counts[state]} ${state}`]))
    .join(', ');

function findingsLine(counts: FindingCounts): string[] {
  const text = countsText(counts);
  return text === '' ? [] : [`findings ${text}`];
}

function trainingLines(training: TrainingProgress | null): string[] {
  if (training === null) return [];
  const { trainingId, state, step, steps, loss, validations, checkpoints, tokensPerSecond, etaSeconds } = training;
  const measured = validations.map((row) => `${row.step}: ${row.loss === null ? 'none' : row.loss.toFixed(4)}`);
  const parts = [
    `training ${trainingId} ${state}: step ${formatCount(step)} of ${formatCount(steps)}`,
    ...(loss === null ? [] : [`loss ${loss.toFixed(4)}`]),
    ...(tokensPerSecond === null ? [] : [`${formatCount(tokensPerSecond)} tokens/s`]),
    ...(etaSeconds === null ? [] : [`about ${formatSeconds(etaSeconds)} left`]),
  ];
  return [
    parts.join(', '),
    ...(measured.length === 0 ? [] : [`  validation loss by step  ${measured.join(', ')}`]),
    ...(checkpoints.length === 0 ? [] : [`  checkpoints  ${checkpoints.join(', ')}`]),
    ...(training.message === '' ? [] : [`  ${training.message}`]),
  ];
}

function championText({ champion, provenWin }: TaskProgress): string {
  if (champion === null) return 'not decided';
  return `v${champion}${provenWin === false ? ' without a proven win' : ''}`;
}
