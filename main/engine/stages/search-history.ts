import type { JudgmentState, SearchHistory, VersionState } from '../../common/domain/retention.ts';
import type { StageContext } from '../runner/stage.ts';
import type { SettledEpisode } from '../store/repositories/episodes.ts';
import type { JudgmentRow } from '../store/repositories/judgments.ts';
import type { WorkflowRow } from '../store/repositories/workflows.ts';
import type { CycleServices } from './services.ts';

/** Everything the store knows of one task's search, and the history the retention policy reads. */
export interface TaskSearch {
  readonly history: SearchHistory;
  readonly versions: readonly WorkflowRow[];
  readonly judgments: readonly JudgmentRow[];
  /** the episode of a version, or of the reference run */
  readonly episodeOf: (target: number | 'reference') => SettledEpisode | undefined;
}

export function readSearch(services: CycleServices, context: StageContext, taskId: string): TaskSearch {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const versions = store.workflows.ofTask({ experimentId, cycle, taskId });
  const episodes = store.episodes.ofTask({ experimentId, cycle, taskId, stage: 'search' });
  const judgments = store.judgments.ofTask({ experimentId, cycle, taskId, stage: 'search' });
  const episodeOf = (target: number | 'reference') =>
    episodes.find((row) => row.workflowVersion === (target === 'reference' ? null : target));
  const targetOf = new Map(episodes.map((row) => [row.episodeId, row.workflowVersion ?? ('reference' as const)]));
  const execution = (target: number | 'reference'): VersionState['execution'] => {
    const outcome = episodeOf(target)?.attempt?.outcome;
    return outcome === 'completed' || outcome === 'halted' ? outcome : 'pending';
  };
  return {
    versions,
    judgments,
    episodeOf,
    history: {
      updates: config.search.updates,
      reference: execution('reference'),
      versions: versions.map((row) => ({
        version: row.version,
        parent: row.parentVersion,
        status: row.status,
        author: row.author,
        execution: row.status === 'proposal_failed' ? 'pending' : execution(row.version),
      })),
      judgments: judgments.flatMap((row) => toJudgmentState(row, targetOf)),
    },
  };
}

function toJudgmentState(row: JudgmentRow, targetOf: ReadonlyMap<string, number | 'reference'>): JudgmentState[] {
  const challenger = targetOf.get(row.firstEpisodeId);
  const incumbent = targetOf.get(row.secondEpisodeId);
  if (row.result === null || typeof challenger !== 'number' || incumbent === undefined) return [];
  if (row.purpose === 'match' || row.purpose === 'compare') return [];
  const verdict = row.result === 'first' ? 'challenger' : row.result === 'second' ? 'incumbent' : 'tie';
  return [{ purpose: row.purpose, challenger, incumbent, verdict }];
}
