import { MassError } from '../../common/base/errors.ts';
import { rolloutSeed } from '../../common/domain/seeds.ts';
import type { Task } from '../../common/domain/task.ts';
import { completeRolloutSet, plannedRuns, taskIdsOf } from '../rollout-sets.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { RolloutSetRow } from '../store/repositories/rollouts.ts';
import { eachTask, settleAll } from './each-task.ts';
import { runEpisode } from './run-episode.ts';
import { type CycleServices, playedBy } from './services.ts';

/**
 * Runs the bare prompt of every task of a set, with the set's generation, `count` times: no workflow and no directive,
 * the tools of any run. A halted run settles like a completed one; the set is closed when every run is settled.
 */
export function rolloutStage(services: CycleServices, setId: string): Stage {
  return {
    name: 'rollout',
    run: async (context) => {
      const set = services.store.rollouts.setById(setId);
      if (!set) throw new MassError('internal', `There is no rollout set ${setId}.`);
      if (set.membersHash !== null) return { complete: true, message: '' };
      const playing = playedBy(services, set.generationId);
      const complete = await eachTask(
        playing,
        { ...context, tasks: taskIdsOf(set) },
        { include: () => true, work: (task) => rolloutTask(playing, context, { set, task }) },
      );
      if (!complete.every(Boolean)) return { complete: false, message: '' };
      completeRolloutSet(services.store, setId);
      return { complete: true, message: '' };
    },
  };
}

async function rolloutTask(
  services: CycleServices,
  context: StageContext,
  { set, task }: { readonly set: RolloutSetRow; readonly task: Task },
): Promise<boolean> {
  const { id: taskId, number: taskNumber } = task.manifest;
  let skipped = false;
  await settleAll(
    Array.from({ length: set.count }, (_, run) =>
      context.slot(async () => {
        if (context.draining()) {
          skipped = true;
          return;
        }
        const settled = services.store.episodes.ofSet(set.setId).filter((row) => row.attempt !== null).length;
        context.doing(
          `rollout L${set.generation} ${taskId}: run ${run + 1} of ${set.count} (${settled} of ${plannedRuns(set)} done)`,
        );
        await runEpisode(services, context, {
          stage: 'rollout',
          task,
          workflowVersion: null,
          replicate: run,
          seed: rolloutSeed({ seedBase: set.seedBase, taskNumber, run }),
          prompt: task.barePrompt,
          setId: set.setId,
        });
      }),
    ),
  );
  return !skipped;
}
