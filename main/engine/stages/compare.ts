import { MassError } from '../../common/base/errors.ts';
import { type ComparedPair, type ComparedRun, compareRollouts } from '../../common/domain/comparison.ts';
import { rolloutSeed } from '../../common/domain/seeds.ts';
import type { Task } from '../../common/domain/task.ts';
import { resolveOrders } from '../agents/evaluator/orders.ts';
import { requireUnchanged, taskIdsOf } from '../rollout-sets.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { AttemptRow, SettledEpisode } from '../store/repositories/episodes.ts';
import type { ComparisonRow, RolloutSetRow } from '../store/repositories/rollouts.ts';
import type { Store } from '../store/store.ts';
import { eachTask, settleAll } from './each-task.ts';
import { judge } from './judge-units.ts';
import { type CycleServices, playedBy } from './services.ts';

/**
 * Judges two sets of rollouts pair by pair, same task and replicate, in both orders, by the comparison's evaluator; then
 * records the outcome, which never changes. A halted run is evidence like any other: it is judged by what it left, and
 * counts as not completed. The seed of a judgment is that of the two rollouts.
 */
export function compareStage(services: CycleServices, comparisonId: string): Stage {
  return {
    name: 'compare',
    run: async (context) => {
      const comparison = requireComparison(services.store, comparisonId);
      if (comparison.resultHash !== null) return { complete: true, message: '' };
      const sets = setsOf(services.store, comparison);
      for (const set of [sets.first, sets.second]) requireUnchanged(services.store, set);
      const judging = playedBy(services, comparison.evaluatorGenerationId);
      const complete = await eachTask(
        judging,
        { ...context, tasks: taskIdsOf(sets.first) },
        { include: () => true, work: (task) => compareTask(judging, context, { comparison, sets, task }) },
      );
      if (!complete.every(Boolean)) return { complete: false, message: '' };
      const { store } = services;
      const result = compareRollouts(comparedPairs(store, comparison, sets));
      store.appendWith(() => [
        {
          type: 'comparison.completed',
          comparisonId,
          experimentId: context.experimentId,
          resultHash: store.artifacts.putJson(result),
        },
      ]);
      return { complete: true, message: '' };
    },
  };
}

interface Sets {
  readonly first: RolloutSetRow;
  readonly second: RolloutSetRow;
}

function requireComparison(store: Store, comparisonId: string): ComparisonRow {
  const row = store.rollouts.comparisonById(comparisonId);
  if (!row) throw new MassError('internal', `There is no comparison ${comparisonId}.`);
  return row;
}

function setsOf(store: Store, { comparisonId, firstSetId, secondSetId }: ComparisonRow): Sets {
  const first = store.rollouts.setById(firstSetId);
  const second = store.rollouts.setById(secondSetId);
  if (!first || !second) throw new MassError('internal', `The comparison ${comparisonId} lacks a set.`);
  return { first, second };
}

interface Pair {
  readonly first: SettledEpisode;
  readonly second: SettledEpisode;
}

/** Runs of both sets with the same task and replicate, in the order of the set's tasks. */
function pairsOf(store: Store, { first, second }: Sets): Pair[] {
  const keyOf = (episode: SettledEpisode): string => JSON.stringify([episode.taskId, episode.replicate]);
  const others = new Map(store.episodes.ofSet(second.setId).map((episode) => [keyOf(episode), episode]));
  const order = taskIdsOf(first);
  return store.episodes
    .ofSet(first.setId)
    .sort((a, b) => order.indexOf(a.taskId) - order.indexOf(b.taskId) || a.replicate - b.replicate)
    .map((episode) => {
      const other = others.get(keyOf(episode));
      if (!other) throw new MassError('internal', `Run ${keyOf(episode)} has no partner in the other set.`);
      return { first: episode, second: other };
    });
}

async function compareTask(
  services: CycleServices,
  context: StageContext,
  { comparison, sets, task }: { comparison: ComparisonRow; sets: Sets; task: Task },
): Promise<boolean> {
  const { id: taskId, number: taskNumber } = task.manifest;
  const { store } = services;
  const { comparisonId } = comparison;
  let skipped = false;
  await settleAll(
    pairsOf(store, sets)
      .filter((pair) => pair.first.taskId === taskId)
      .map(({ first, second }) =>
        context.slot(async () => {
          if (context.draining()) {
            skipped = true;
            return;
          }
          const decided = store.judgments.ofComparison(comparisonId).filter((row) => row.result !== null).length;
          context.doing(
            `compare L${comparison.firstGeneration} and L${comparison.secondGeneration} on ${taskId}: run ${first.replicate + 1} (${decided} of ${comparison.pairs} pairs judged)`,
          );
          await judge(services, context, {
            stage: 'compare',
            purpose: 'compare',
            task,
            firstEpisodeId: first.episodeId,
            secondEpisodeId: second.episodeId,
            seed: rolloutSeed({ seedBase: sets.first.seedBase, taskNumber, run: first.replicate }),
            comparisonId,
          });
        }),
      ),
  );
  return !skipped;
}

/** What the statistics need of every judged pair. */
function comparedPairs(store: Store, { comparisonId, experimentId }: ComparisonRow, sets: Sets): ComparedPair[] {
  const judgments = new Map(store.judgments.ofComparison(comparisonId).map((row) => [row.firstEpisodeId, row]));
  const splits = new Map(store.tasks.of(experimentId).map((row) => [row.taskId, row.split]));
  return pairsOf(store, sets).map(({ first, second }) => {
    const judgment = judgments.get(first.episodeId);
    const split = splits.get(first.taskId);
    if (!judgment?.result || !first.attempt || !second.attempt || !split)
      throw new MassError('internal', `Run ${first.replicate} of "${first.taskId}" is not judged.`);
    const resolution = resolveOrders(
      store.judgments
        .presentations(judgment.judgmentId)
        .map(({ shownAsA, verdict, valid }) => ({ shownAsA, verdict, valid: valid === 1 })),
    );
    return {
      taskId: first.taskId,
      split,
      replicate: first.replicate,
      first: comparedRun(first.attempt),
      second: comparedRun(second.attempt),
      result: judgment.result,
      flipped: resolution.flipped,
      invalidPresentations: resolution.invalid,
      decidedPresentations: resolution.decided,
      firstSlotWins: resolution.firstSlotWins,
    };
  });
}

/** An attempt as the statistics see it. */
export const comparedRun = (attempt: AttemptRow): ComparedRun => ({
  completed: attempt.outcome === 'completed',
  delegations: attempt.delegations,
  outputTokens: attempt.generatedTokens,
  conditions: JSON.stringify([attempt.runtime, attempt.runtimePromptsJson, attempt.sandboxMode, attempt.inputsHash]),
});
