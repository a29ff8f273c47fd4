import type { StageContext } from '../runner/stage.ts';
import type { SettledEpisode } from '../store/repositories/episodes.ts';
import type { RatingRow } from '../store/repositories/tournaments.ts';
import type { CycleServices } from './services.ts';

/**
 * A candidate's name in schedule and ratings: its run number with leading zeros, so that "equal scores by name" and the
 * seeded schedule do not depend on random row ids.
 */
export const candidateName = (episode: Pick<SettledEpisode, 'replicate'>): string =>
  String(episode.replicate).padStart(4, '0');

/** Collected runs of a task that succeeded, by run number. */
export function candidatesOf(
  services: CycleServices,
  { experimentId, cycle }: StageContext,
  taskId: string,
): SettledEpisode[] {
  return services.store.episodes
    .ofTask({ experimentId, cycle, taskId, stage: 'collect' })
    .filter((episode) => episode.attempt?.outcome === 'completed')
    .sort((a, b) => a.replicate - b.replicate);
}

/** Train tasks that were not excluded from collection. */
export function suppliesData(services: CycleServices, { experimentId, cycle }: StageContext, taskId: string): boolean {
  return !services.store.tasks.exclusions({ experimentId, cycle }).some((row) => row.taskId === taskId);
}

export const ratingsBy = (rows: readonly RatingRow[], method: RatingRow['method']): RatingRow[] =>
  rows.filter((row) => row.method === method).sort((a, b) => a.rank - b.rank);
