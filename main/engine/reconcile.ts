import type { DomainEvent } from '../common/domain/events.ts';
import { nothingDone } from './stages/run-episode.ts';
import type { Store } from './store/store.ts';

/**
 * What a dead engine left open is closed as `interrupted` before anything new starts: its attempts keep their
 * workspaces, their episodes are open again, its trainings stand at their checkpoints, and its runs say why they ended.
 */
export function reconcile(store: Store): number {
  const events: DomainEvent[] = [];
  for (const attempt of store.episodes.openAttempts())
    events.push({
      type: 'attempt.ended',
      attemptId: attempt.attemptId,
      episodeId: attempt.episodeId,
      experimentId: attempt.experimentId,
      outcome: 'interrupted',
      haltReason: null,
      ending: 'The engine ended while this attempt ran.',
      ...nothingDone,
    });
  for (const { trainingId, experimentId, fromStep } of store.trainings.running())
    events.push({
      type: 'training.ended',
      trainingId,
      experimentId,
      state: 'stopped',
      step: store.trainings.steps(trainingId).at(-1)?.step ?? fromStep,
      message: 'The engine ended while this trained; it goes on from the newest checkpoint.',
    });
  for (const run of store.experiments.openRuns()) {
    const message = 'The engine ended while this ran; run again to continue.';
    for (const stage of store.experiments.openStagesOf(run.runId)) {
      const { experimentId, cycle, runId } = stage;
      events.push({
        type: 'stage.ended',
        experimentId,
        cycle,
        stage: stage.stage,
        runId,
        state: 'interrupted',
        message,
      });
    }
    events.push({
      type: 'run.ended',
      runId: run.runId,
      experimentId: run.experimentId,
      state: 'interrupted',
      message,
      errorJson: null,
    });
  }
  if (events.length > 0) store.append(...events);
  return events.length;
}
