import { cancelled, MassError } from '../../common/base/errors.ts';
import { retentionPolicy, type SearchAction } from '../../common/domain/retention.ts';
import {
  referenceEpisodeSeed,
  searchEpisodeSeed,
  searchJudgeSeed,
  seedBaseOfCycle,
} from '../../common/domain/seeds.ts';
import type { Task } from '../../common/domain/task.ts';
import { composeTeacherPrompt, parseWorkflow } from '../../common/domain/workflow-block.ts';
import { newId } from '../../node/ids.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import { eachTask, settleAll } from './each-task.ts';
import { judge } from './judge-units.ts';
import { propose } from './propose.ts';
import { runEpisode } from './run-episode.ts';
import { readSearch } from './search-history.ts';
import type { CycleServices } from './services.ts';

/**
 * Searches a workflow for every task: execute, judge, propose, by the configured retention policy. The policy is asked
 * what comes next until it says `done`; what is recorded is all it knows, so a resumed search goes on where it was.
 */
export function searchStage(services: CycleServices): Stage {
  return {
    name: 'search',
    run: async (context) => {
      const complete = await eachTask(services, context, {
        include: (row) => row.split === 'train' || context.config.search.searchTestTasks,
        work: (task) => searchTask(services, context, task),
      });
      return { complete: complete.every(Boolean), message: '' };
    },
  };
}

async function searchTask(services: CycleServices, context: StageContext, task: Task): Promise<boolean> {
  const policy = retentionPolicy(context.config.search.policy);
  const taskId = task.manifest.id;
  ensureSeedVersion(services, context, task);
  for (;;) {
    if (context.signal.aborted) throw cancelled();
    const search = readSearch(services, context, taskId);
    const actions = policy.next(search.history);
    const done = actions.find((action) => action.kind === 'done');
    if (done) {
      recordChampion(services, context, { taskId, version: done.champion, provenWin: done.provenWin });
      return true;
    }
    if (context.draining()) return false;
    await settleAll(actions.map((action) => context.slot(() => perform(services, context, { task, action }))));
  }
}

/** v0 is the task's own workflow; every later version is a row of its own. */
function ensureSeedVersion({ store }: CycleServices, { experimentId, cycle }: StageContext, task: Task): void {
  const taskId = task.manifest.id;
  if (store.workflows.ofTask({ experimentId, cycle, taskId }).length > 0) return;
  store.appendWith(() => [
    {
      type: 'workflow.added',
      workflowId: newId('wf'),
      experimentId,
      cycle,
      taskId,
      version: 0,
      parentVersion: null,
      author: 'seed',
      status: 'proposed',
      blockHash: store.artifacts.put(task.initialWorkflow),
      partsJson: JSON.stringify(parseWorkflow(task.initialWorkflow)),
      proposalId: null,
      note: "the task's initial workflow",
    },
  ]);
}

function recordChampion(
  { store }: CycleServices,
  { experimentId, cycle, config }: StageContext,
  { taskId, version, provenWin }: { taskId: string; version: number; provenWin: boolean },
): void {
  const known = store.workflows.champion({ experimentId, cycle, taskId });
  if (known && known.version === version && (known.provenWin === 1) === provenWin) return;
  store.append({
    type: 'champion.decided',
    experimentId,
    cycle,
    taskId,
    policy: config.search.policy,
    version,
    provenWin,
  });
}

interface Unit {
  readonly task: Task;
  readonly action: SearchAction;
}

async function perform(services: CycleServices, context: StageContext, { task, action }: Unit): Promise<void> {
  if (context.draining()) return;
  const { id: taskId, number: taskNumber } = task.manifest;
  const seedBase = seedBaseOfCycle(context.config.search.seedBase, context.cycle);
  const report = (doing: string) => context.doing(`search ${taskId}: ${doing}`);
  switch (action.kind) {
    case 'execute': {
      const { target } = action;
      report(`running ${target === 'reference' ? 'the reference' : `v${target}`}`);
      await runEpisode(services, context, {
        stage: 'search',
        task,
        workflowVersion: target === 'reference' ? null : target,
        replicate: 0,
        seed:
          target === 'reference'
            ? referenceEpisodeSeed({ seedBase, taskNumber })
            : searchEpisodeSeed({ seedBase, taskNumber, version: target }),
        prompt:
          target === 'reference' ? task.barePrompt : teacherPromptOf(services, context, { task, version: target }),
      });
      return;
    }
    case 'judge': {
      const search = readSearch(services, context, taskId);
      const first = search.episodeOf(action.challenger);
      const second = search.episodeOf(action.incumbent);
      if (!first || !second)
        throw new MassError(
          'internal',
          `v${action.challenger} of "${taskId}" cannot be judged before both runs exist.`,
        );
      report(
        `judging v${action.challenger} against ${action.incumbent === 'reference' ? 'the reference' : `v${action.incumbent}`}`,
      );
      await judge(services, context, {
        stage: 'search',
        purpose: action.purpose,
        task,
        firstEpisodeId: first.episodeId,
        secondEpisodeId: second.episodeId,
        seed: searchJudgeSeed({ seedBase, taskNumber }),
      });
      return;
    }
    case 'propose':
      report(`proposing v${action.version}`);
      await propose(services, context, { task, version: action.version, basedOn: action.basedOn });
      return;
    case 'done':
      return;
  }
}

function teacherPromptOf(
  services: CycleServices,
  { experimentId, cycle }: StageContext,
  unit: { task: Task; version: number },
): string {
  const { store } = services;
  const taskId = unit.task.manifest.id;
  const row = store.workflows
    .ofTask({ experimentId, cycle, taskId })
    .find((candidate) => candidate.version === unit.version);
  if (!row?.blockHash) throw new MassError('internal', `v${unit.version} of "${taskId}" has no workflow text.`);
  return composeTeacherPrompt({ barePrompt: unit.task.barePrompt, block: store.artifacts.text(row.blockHash) });
}
