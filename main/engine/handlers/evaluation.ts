import { MassError } from '../../common/base/errors.ts';
import { type ComparedRun, ComparisonResult, reversed, sideOf } from '../../common/domain/comparison.ts';
import { Split } from '../../common/domain/events.ts';
import type { ComparisonReport, RolloutReport } from '../../common/protocol/evaluation.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { generationNumbered } from '../cycle-generation.ts';
import { type Experiment, requireExperiment } from '../experiments.ts';
import { type ComparisonWish, openComparison, openRolloutSet, plannedRuns, taskIdsOf } from '../rollout-sets.ts';
import type { createRunner } from '../runner/runner.ts';
import { comparedRun } from '../stages/compare.ts';
import type { ComparisonRow, RolloutSetRow } from '../store/repositories/rollouts.ts';
import type { Store } from '../store/store.ts';

type Methods = 'rollout.start' | 'rollout.show' | 'compare.start' | 'compare.show' | 'evaluation.list';

export interface EvaluationParts {
  readonly store: Store;
  readonly runner: ReturnType<typeof createRunner>;
}

/** Rollouts for reporting and comparisons between generations. They belong to no cycle: their runs have cycle 0. */
export function evaluationHandlers({ store, runner }: EvaluationParts): Pick<EngineHandlers, Methods> {
  /** Refused before anything is created, so that a set with a mistyped count is not left behind a running run. */
  const requireIdle = (experiment: Experiment): void => {
    if (runner.active().some((run) => run.order.experimentId === experiment.experimentId))
      throw new MassError(
        'conflict',
        `"${experiment.name}" is already running; watch it with: mass status ${experiment.name}`,
      );
  };
  const start = ({ experimentId, name, config }: Experiment, stage: 'rollout' | 'compare', subject: string) =>
    runner.start({ experimentId, name, cycle: 0, config, stages: [stage], tasks: null, subject }).runId;

  return {
    'rollout.start': async ({ name, ...wish }) => {
      const experiment = requireExperiment(store, name);
      requireIdle(experiment);
      const set = openRolloutSet(store, experiment, wish);
      return { runId: set.membersHash === null ? start(experiment, 'rollout', set.setId) : null };
    },
    'rollout.show': async ({ name, ...wish }) => rolloutReport(store, requireSet(store, name, wish)),
    'compare.start': async ({ name, ...wish }) => {
      const experiment = requireExperiment(store, name);
      requireIdle(experiment);
      const comparison = openComparison(store, experiment, wish);
      return { runId: comparison.resultHash === null ? start(experiment, 'compare', comparison.comparisonId) : null };
    },
    'compare.show': async ({ name, ...wish }) => {
      const row = requireComparison(store, requireExperiment(store, name), wish);
      return asAsked(comparisonReport(store, row), wish);
    },
    'evaluation.list': async ({ name }) => {
      const { experimentId } = requireExperiment(store, name);
      return {
        sets: store.rollouts.sets(experimentId).map((row) => rolloutReport(store, row)),
        comparisons: store.rollouts.comparisons(experimentId).map((row) => comparisonReport(store, row)),
      };
    },
  };
}

function requireSet(store: Store, name: string, wish: { generation: number; set: string }): RolloutSetRow {
  const experiment = requireExperiment(store, name);
  const { generationId } = generationNumbered(store, experiment, wish.generation);
  const row = store.rollouts
    .sets(experiment.experimentId)
    .find((candidate) => candidate.generationId === generationId && candidate.name === wish.set);
  if (row) return row;
  throw new MassError('not_found', `"${name}" has no rollouts of L${wish.generation} in a set "${wish.set}".`);
}

function requireComparison(store: Store, { experimentId, name }: Experiment, wish: ComparisonWish): ComparisonRow {
  const [high, low] = [Math.max(wish.first, wish.second), Math.min(wish.first, wish.second)];
  const row = store.rollouts
    .comparisons(experimentId)
    .find(
      (candidate) =>
        candidate.setName === wish.set && candidate.firstGeneration === high && candidate.secondGeneration === low,
    );
  if (row) return row;
  throw new MassError(
    'not_found',
    `"${name}" has no comparison of L${wish.first} and L${wish.second} in a set "${wish.set}".`,
  );
}

function rolloutReport(store: Store, set: RolloutSetRow): RolloutReport {
  const splitOf = new Map(store.tasks.of(set.experimentId).map((row) => [row.taskId, row.split]));
  const runs = store.episodes
    .ofSet(set.setId)
    .flatMap(({ taskId, attempt }) => (attempt ? [{ taskId, run: comparedRun(attempt) }] : []));
  const side = (include: (taskId: string) => boolean) =>
    sideOf(runs.filter(({ taskId }) => include(taskId)).map(({ run }): ComparedRun => run));
  const taskIds = taskIdsOf(set);
  return {
    setId: set.setId,
    set: set.name,
    generation: set.generation,
    count: set.count,
    seedBase: set.seedBase,
    planned: plannedRuns(set),
    settled: runs.length,
    complete: set.membersHash !== null,
    tasks: taskIds.map((id) => ({ taskId: id, split: splitOf.get(id) ?? 'train', ...side((other) => other === id) })),
    splits: Split.options
      .filter((split) => taskIds.some((id) => splitOf.get(id) === split))
      .map((split) => ({ split, ...side((id) => splitOf.get(id) === split) })),
    all: side(() => true),
  };
}

function comparisonReport(store: Store, row: ComparisonRow): ComparisonReport {
  const set = store.rollouts.setById(row.firstSetId);
  if (!set) throw new MassError('internal', `The comparison ${row.comparisonId} lacks a set.`);
  return {
    comparisonId: row.comparisonId,
    set: row.setName,
    first: row.firstGeneration,
    second: row.secondGeneration,
    evaluator: row.evaluatorGeneration,
    count: set.count,
    seedBase: set.seedBase,
    pairs: row.pairs,
    judged: store.judgments.ofComparison(row.comparisonId).filter((judgment) => judgment.result !== null).length,
    result: row.resultHash === null ? null : ComparisonResult.parse(store.artifacts.json(row.resultHash)),
  };
}

/** The generation that was named first comes first. */
function asAsked(report: ComparisonReport, { first, second }: ComparisonWish): ComparisonReport {
  if (report.first === first) return report;
  return { ...report, first, second, result: report.result && reversed(report.result) };
}
