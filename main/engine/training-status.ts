import type { TrainingProgress } from '../common/protocol/training.ts';
import type { CycleKey } from './store/repositories/tasks.ts';
import type { Store } from './store/store.ts';

/** Steps whose time tells how long the rest will take. */
const recentSteps = 20;

/** The newest training of a cycle, from its rows; null before the first. */
export function trainingProgress(store: Store, key: CycleKey): TrainingProgress | null {
  const row = store.trainings.ofCycle(key);
  if (!row) return null;
  const { trainingId, state, steps, message } = row;
  const done = store.trainings.steps(trainingId);
  const recent = done.slice(-recentSteps);
  const seconds = recent.reduce((sum, step) => sum + step.seconds, 0);
  const tokens = recent.reduce((sum, step) => sum + step.tokens, 0);
  const step = state === 'running' ? (done.at(-1)?.step ?? row.fromStep) : row.step;
  return {
    trainingId,
    state,
    step,
    steps,
    loss: done.at(-1)?.loss ?? null,
    validations: store.trainings.validations(trainingId).map(({ step: at, loss }) => ({ step: at, loss })),
    checkpoints: store.trainings.checkpoints(trainingId).map((checkpoint) => checkpoint.step),
    tokensPerSecond: seconds > 0 ? tokens / seconds : null,
    etaSeconds: state === 'running' && recent.length > 0 ? (seconds / recent.length) * (steps - step) : null,
    message,
  };
}
