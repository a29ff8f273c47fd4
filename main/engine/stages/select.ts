import { MassError } from '../../common/base/errors.ts';
import { type Pool, quarantine } from '../../common/domain/quarantine.ts';
import { compareSelections, selectRuns } from '../../common/domain/selection.ts';
import type { Task } from '../../common/domain/task.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { RatingRow } from '../store/repositories/tournaments.ts';
import { checkCollected, standingOfRun } from './check-runs.ts';
import { eachTask } from './each-task.ts';
import { liftGates, stopForPerson, type TaskPool } from './selection-gates.ts';
import type { CycleServices } from './services.ts';
import { ratingsBy, suppliesData } from './tournament.ts';

/**
 * Cuts every task's ranking into train, validate and drop. Runs with findings that are not cleared are left out before
 * the cut and the next ranks move up. A selection that is made stays as it is, whatever is decided later. The MM fit
 * decides; a different cut by the Newton fit is flagged.
 */
export function selectStage(services: CycleServices): Stage {
  return {
    name: 'select',
    run: async (context) => {
      const pools = await eachTask(services, context, {
        include: (row) => row.split === 'train' && suppliesData(services, context, row.taskId),
        work: (task) => poolOf(services, context, task),
      });
      const open = pools.filter((pool) => pool !== null);
      await stopForPerson(services, context, open);
      liftGates(services, context, ['short-pool', 'on-findings']);
      for (const pool of open) selectTask(services, context, pool);
      return { complete: true, message: leftOutMessage(open) };
    },
  };
}

const leftOutMessage = (pools: readonly TaskPool[]): string => {
  const count = pools.reduce((sum, { pool }) => sum + pool.leftOut.length, 0);
  return count === 0 ? '' : `${count} ranked ${count === 1 ? 'run was' : 'runs were'} left out because of findings.`;
};

/** The ranked runs of a task and what their findings leave of them; null when its selection is made. */
async function poolOf(services: CycleServices, context: StageContext, task: Task): Promise<TaskPool | null> {
  const taskId = task.manifest.id;
  const key = { experimentId: context.experimentId, cycle: context.cycle, taskId };
  if (services.store.tournaments.selection(key)) return null;
  if (services.store.tournaments.ratings(key).length === 0)
    throw new MassError('usage', `The runs of "${taskId}" are not ranked yet; run: mass rank`);
  await checkCollected(services, context, task);
  return { taskId, pool: rankingPool(services, context, { taskId, method: 'mm' }) };
}

function rankingPool(
  services: CycleServices,
  context: StageContext,
  { taskId, method }: { taskId: string; method: RatingRow['method'] },
): Pool {
  const { experimentId, cycle, config } = context;
  const ratings = services.store.tournaments.ratings({ experimentId, cycle, taskId });
  return quarantine({
    ranking: ratingsBy(ratings, method).map((row) => ({ id: row.episodeId, rank: row.rank, score: row.score })),
    needed: config.select.train + config.select.validate,
    standing: (episodeId) => standingOfRun(services, context, episodeId),
  });
}

function selectTask(services: CycleServices, context: StageContext, { taskId, pool }: TaskPool): void {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const { train, validate } = config.select;
  const chosen = selectRuns({ ranking: pool.eligible, train, validate });
  const newton = rankingPool(services, context, { taskId, method: 'newton' }).eligible;
  const differences = compareSelections(chosen, selectRuns({ ranking: newton, train, validate }));
  store.append({
    type: 'selection.made',
    experimentId,
    cycle,
    taskId,
    provenWin: store.workflows.champion({ experimentId, cycle, taskId })?.provenWin === 1,
    flagged: differences.length > 0,
    flagJson: JSON.stringify(differences),
    entries: chosen.map(({ id, rank, decision }) => ({ episodeId: id, rank, decision })),
    ...(pool.leftOut.length === 0
      ? {}
      : { leftOut: pool.leftOut.map(({ id, rank, standing }) => ({ episodeId: id, rank, standing })) }),
  });
}
