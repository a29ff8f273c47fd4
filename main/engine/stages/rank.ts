import { MassError } from '../../common/base/errors.ts';
import { fitMM, fitNewton, type PairOutcome, rankByScore } from '../../common/domain/bradley-terry.ts';
import type { DomainEvent } from '../../common/domain/events.ts';
import { scheduleMatches } from '../../common/domain/schedule.ts';
import type { Task } from '../../common/domain/task.ts';
import { judgeOrderPlan } from '../agents/evaluator/orders.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { SettledEpisode } from '../store/repositories/episodes.ts';
import type { JudgmentRow } from '../store/repositories/judgments.ts';
import { eachTask, settleAll } from './each-task.ts';
import { decideJudgment, missingPresentations, openJudgment, present } from './judge-units.ts';
import type { CycleServices } from './services.ts';
import { candidateName, candidatesOf, suppliesData } from './tournament.ts';

/**
 * Judges the scheduled matches of every task's collected runs and fits their ratings. The schedule is recorded before
 * the first match; presentations that show the same submission first run one after another, because the model's cache
 * then holds it. Verdicts do not depend on that order.
 */
export function rankStage(services: CycleServices): Stage {
  return {
    name: 'rank',
    run: async (context) => {
      const complete = await eachTask(services, context, {
        include: (row) => row.split === 'train' && suppliesData(services, context, row.taskId),
        work: (task) => rankTask(services, context, task),
      });
      return { complete: complete.every(Boolean), message: '' };
    },
  };
}

async function rankTask(services: CycleServices, context: StageContext, task: Task): Promise<boolean> {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const taskId = task.manifest.id;
  const key = { experimentId, cycle, taskId };
  const candidates = candidatesOf(services, context, taskId);
  requireCollected(services, context, taskId);
  requireEnough(candidates.length, context, taskId);
  if (store.tournaments.matches(key).length === 0) scheduleTask(services, context, { task, candidates });

  const judgments = store.tournaments.matches(key).map((match) =>
    openJudgment(services, context, {
      stage: 'rank',
      purpose: 'match',
      task,
      firstEpisodeId: match.firstEpisodeId,
      secondEpisodeId: match.secondEpisodeId,
      seed: match.seed,
    }),
  );
  await settleAll(
    groupsByShownFirst(judgments, config.judging.orders).map((group) =>
      context.slot(async () => {
        for (const { match, shownAsA } of group) {
          if (context.draining()) return;
          if (!missingPresentations(services, match.judgment).includes(shownAsA)) continue;
          context.doing(`rank ${taskId}: match ${judgments.indexOf(match.judgment) + 1} of ${judgments.length}`);
          await present(services, context, { judgment: match.judgment, task, shownAsA });
          decideJudgment(services, match.judgment);
        }
      }),
    ),
  );
  const undecided = judgments.filter((judgment) => decideJudgment(services, judgment) === null);
  if (undecided.length > 0) return false;
  if (store.tournaments.ratings(key).length === 0)
    store.append(...ratingEvents(services, context, { taskId, candidates }));
  return true;
}

function requireCollected(
  { store }: CycleServices,
  { experimentId, cycle, config }: StageContext,
  taskId: string,
): void {
  const collected = store.episodes
    .ofTask({ experimentId, cycle, stage: 'collect', taskId })
    .filter((episode) => store.episodes.settledAttempt(episode.episodeId) !== undefined).length;
  if (collected >= config.collect.runs) return;
  throw new MassError(
    'usage',
    `${collected} of ${config.collect.runs} runs of "${taskId}" are collected; finish that first: mass collect`,
  );
}

function requireEnough(available: number, { config }: StageContext, taskId: string): void {
  const needed = Math.max(2, config.select.train + config.select.validate);
  if (available >= needed) return;
  throw new MassError(
    'prerequisite',
    `"${taskId}" has ${available} successful runs and the selection needs ${needed}; make a new experiment with more collect.runs, or with a smaller select.`,
    { details: { taskId, available, needed } },
  );
}

interface Tournament {
  readonly task: Task;
  readonly candidates: readonly SettledEpisode[];
}

function scheduleTask(
  { store }: CycleServices,
  { experimentId, cycle, config }: StageContext,
  { task, candidates }: Tournament,
): void {
  const byName = new Map(candidates.map((episode) => [candidateName(episode), episode.episodeId]));
  const matches = scheduleMatches({
    ids: [...byName.keys()],
    opponents: config.rank.opponents,
    seed: config.rank.scheduleSeed,
    taskNumber: task.manifest.number,
  });
  store.append(
    ...matches.map(
      (match): DomainEvent => ({
        type: 'match.scheduled',
        experimentId,
        cycle,
        taskId: task.manifest.id,
        matchIndex: match.index,
        firstEpisodeId: byName.get(match.first) as string,
        secondEpisodeId: byName.get(match.second) as string,
        seed: match.seed,
      }),
    ),
  );
}

/** Presentations in groups that show the same submission first. */
function groupsByShownFirst(judgments: readonly JudgmentRow[], orders: 1 | 2) {
  const matches = judgments.map((judgment) => ({
    first: judgment.firstEpisodeId,
    second: judgment.secondEpisodeId,
    judgment,
  }));
  const groups = new Map<string, ReturnType<typeof judgeOrderPlan<(typeof matches)[number]>>>();
  for (const planned of judgeOrderPlan(matches, { orders })) {
    const shown = planned.match[planned.shownAsA];
    groups.set(shown, [...(groups.get(shown) ?? []), planned]);
  }
  return [...groups.values()];
}

/** Both fits: MM selects, Newton stands beside it with standard errors. */
function ratingEvents(
  { store }: CycleServices,
  { experimentId, cycle, config }: StageContext,
  { taskId, candidates }: { taskId: string; candidates: readonly SettledEpisode[] },
): DomainEvent[] {
  const names = candidates.map(candidateName);
  const indexOf = new Map(candidates.map((episode, i) => [episode.episodeId, i]));
  const outcomes: PairOutcome[] = store.judgments
    .ofTask({ experimentId, cycle, taskId, stage: 'rank' })
    .flatMap((row) => {
      const first = indexOf.get(row.firstEpisodeId);
      const second = indexOf.get(row.secondEpisodeId);
      return row.result === null || first === undefined || second === undefined
        ? []
        : [{ first, second, result: row.result }];
    });
  const mm = fitMM({ n: names.length, outcomes, iterations: config.rank.iterations });
  const newton = fitNewton({ n: names.length, outcomes });
  const event = (method: 'mm' | 'newton', scores: readonly number[]): DomainEvent => ({
    type: 'ratings.computed',
    experimentId,
    cycle,
    taskId,
    method,
    entries: rankByScore(names, scores).map(({ id, rank, score }) => {
      const i = names.indexOf(id);
      return {
        episodeId: candidates[i]?.episodeId as string,
        rank,
        score,
        standardError: newton.standardErrors[i] ?? null,
        wins: outcomes.reduce((sum, outcome) => sum + pointsOf(outcome, i), 0),
        matches: outcomes.filter(({ first, second }) => first === i || second === i).length,
      };
    }),
  });
  return [event('mm', mm.scores), event('newton', newton.scores)];
}

/** A win is one point, a tie half. */
function pointsOf({ first, second, result }: PairOutcome, candidate: number): number {
  if (first !== candidate && second !== candidate) return 0;
  if (result === 'tie') return 0.5;
  return (result === 'first') === (first === candidate) ? 1 : 0;
}
