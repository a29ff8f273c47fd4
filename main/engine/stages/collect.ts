import { MassError } from '../../common/base/errors.ts';
import { collectSeed, seedBaseOfCycle } from '../../common/domain/seeds.ts';
import type { Task } from '../../common/domain/task.ts';
import { composeTeacherPrompt } from '../../common/domain/workflow-block.ts';
import { loadPrompt } from '../../node/prompts.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import { checkAttempt } from './check-runs.ts';
import { eachTask, settleAll } from './each-task.ts';
import { runEpisode } from './run-episode.ts';
import type { CycleServices } from './services.ts';

/**
 * Runs the retained workflow of every eligible train task `collect.runs` times, each with its own seed and workspace.
 * Test tasks are never collected. A task whose workflow did not beat its reference is excluded when
 * `search.requireProvenWin`; the exclusion is recorded.
 */
export function collectStage(services: CycleServices): Stage {
  return {
    name: 'collect',
    run: async (context) => {
      const complete = await eachTask(services, context, {
        include: (row) => row.split === 'train',
        work: (task) => collectTask(services, context, task),
      });
      return { complete: complete.every(Boolean), message: '' };
    },
  };
}

async function collectTask(services: CycleServices, context: StageContext, task: Task): Promise<boolean> {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const taskId = task.manifest.id;
  const champion = store.workflows.champion({ experimentId, cycle, taskId });
  if (!champion) throw new MassError('usage', `The search of "${taskId}" is not finished; run: mass search`);
  if (config.search.requireProvenWin && champion.provenWin === 0) {
    const known = store.tasks.exclusions({ experimentId, cycle }).some((row) => row.taskId === taskId);
    const reason = 'No workflow beat the bare prompt, and search.requireProvenWin is true.';
    if (!known) store.append({ type: 'task.excluded', experimentId, cycle, taskId, stage: 'collect', reason });
    return true;
  }
  const workflow = store.workflows
    .ofTask({ experimentId, cycle, taskId })
    .find((row) => row.version === champion.version);
  if (!workflow?.blockHash)
    throw new MassError('internal', `The champion v${champion.version} of "${taskId}" has no workflow text.`);
  const prompt = composeTeacherPrompt({
    barePrompt: task.barePrompt,
    block: store.artifacts.text(workflow.blockHash),
    directive: loadPrompt('execution-directive', 1).text,
  });
  const seedBase = seedBaseOfCycle(config.collect.seedBase, cycle);
  const runs = Array.from({ length: config.collect.runs }, (_, run) => run);
  let skipped = false;
  await settleAll(
    runs.map((run) =>
      context.slot(async () => {
        if (context.draining()) {
          skipped = true;
          return;
        }
        context.doing(`collect ${taskId}: run ${run + 1} of ${runs.length}`);
        const attempt = await runEpisode(services, context, {
          stage: 'collect',
          task,
          workflowVersion: champion.version,
          replicate: run,
          seed: collectSeed({ seedBase, taskNumber: task.manifest.number, run }),
          prompt,
        });
        await checkAttempt(services, task, attempt);
      }),
    ),
  );
  return !skipped;
}
