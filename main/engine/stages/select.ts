import { MassError } from '../../common/base/errors.ts';
import { compareSelections, selectRuns } from '../../common/domain/selection.ts';
import type { Task } from '../../common/domain/task.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { RatingRow } from '../store/repositories/tournaments.ts';
import { eachTask } from './each-task.ts';
import type { CycleServices } from './services.ts';
import { ratingsBy, suppliesData } from './tournament.ts';

/** Cuts every task's ranking into train, validate and drop. The MM fit decides; a different cut by the Newton fit is flagged. */
export function selectStage(services: CycleServices): Stage {
  return {
    name: 'select',
    run: async (context) => {
      await eachTask(services, context, {
        include: (row) => row.split === 'train' && suppliesData(services, context, row.taskId),
        work: async (task) => selectTask(services, context, task),
      });
      return { complete: true, message: '' };
    },
  };
}

function selectTask(services: CycleServices, context: StageContext, task: Task): void {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const taskId = task.manifest.id;
  const key = { experimentId, cycle, taskId };
  if (store.tournaments.selection(key)) return;
  const ratings = store.tournaments.ratings(key);
  if (ratings.length === 0) throw new MassError('usage', `The runs of "${taskId}" are not ranked yet; run: mass rank`);
  const cut = (method: RatingRow['method']) =>
    selectRuns({
      ranking: ratingsBy(ratings, method).map((row) => ({ id: row.episodeId, rank: row.rank, score: row.score })),
      train: config.select.train,
      validate: config.select.validate,
    });
  const chosen = cut('mm');
  const differences = compareSelections(chosen, cut('newton'));
  store.append({
    type: 'selection.made',
    experimentId,
    cycle,
    taskId,
    provenWin: store.workflows.champion(key)?.provenWin === 1,
    flagged: differences.length > 0,
    flagJson: JSON.stringify(differences),
    entries: chosen.map(({ id, rank, decision }) => ({ episodeId: id, rank, decision })),
  });
}
