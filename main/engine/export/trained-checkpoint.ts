import { MassError } from '../../common/base/errors.ts';
import { chooseCheckpoint, type TrainedSteps } from '../../common/domain/checkpoint-choice.ts';
import type { CycleKey } from '../store/repositories/tasks.ts';
import type { CheckpointRow, TrainingRow } from '../store/repositories/trainings.ts';
import type { Store } from '../store/store.ts';

/** The training of a cycle, when it is one whose checkpoint can become a generation. Errors: `usage`. */
export function requireTrained(store: Store, { experimentId, cycle }: CycleKey): TrainingRow {
  const name = store.experiments.byId(experimentId)?.name ?? experimentId;
  const again = `mass train ${name}${cycle > 1 ? ` --cycle ${cycle}` : ''}`;
  const training = store.trainings.ofCycle({ experimentId, cycle });
  if (!training) throw new MassError('usage', `Cycle ${cycle} of "${name}" is not trained yet; run: ${again}`);
  if (training.state === 'finished' || training.state === 'diverged') return training;
  throw new MassError(
    'usage',
    `The training of cycle ${cycle} is at step ${training.step} of ${training.steps} (${training.state}); finish it with: ${again}`,
  );
}

/** What can be chosen from. A validation over no tokens says nothing, and is left out. */
export const trainedSteps = (store: Store, { trainingId }: TrainingRow): TrainedSteps => ({
  saved: store.trainings.checkpoints(trainingId).map(({ step }) => step),
  validations: store.trainings
    .validations(trainingId)
    .filter(({ labelledTokens }) => labelledTokens > 0)
    .map(({ step, loss }) => ({ step, loss })),
});

/**
 * The checkpoint to export: the choice that was made, by a person or an earlier run, or else the one the rule makes, which
 * is recorded. Errors: `gate` when a person has to choose (the training diverged, or a validation loss is not finite).
 */
export function settleChoice(store: Store, training: TrainingRow): CheckpointRow {
  const { trainingId, experimentId } = training;
  const known = store.trainings.choice(trainingId);
  if (known?.chosenBy !== 'person' && !isOf(training, known?.chosenAt)) {
    const steps = trainedSteps(store, training);
    if (training.state === 'diverged') throw diverged(training, steps);
    const { step, loss, by } = chooseCheckpoint(steps);
    store.append({ type: 'checkpoint.chosen', trainingId, experimentId, step, loss, by, note: '' });
  }
  const choice = store.trainings.choice(trainingId);
  const checkpoint = store.trainings.checkpoints(trainingId).find(({ step }) => step === choice?.step);
  if (!checkpoint) throw new MassError('internal', `The training ${trainingId} has no checkpoint of its chosen step.`);
  return checkpoint;
}

/**
 * Whether something was done after the training ended. One whose checkpoints were lost is trained again under the same id,
 * and what was made of the lost ones is not of these.
 */
export const isOf = ({ endedAt }: TrainingRow, at: number | undefined): boolean =>
  at !== undefined && at >= (endedAt ?? 0);

const diverged = ({ message }: TrainingRow, { saved }: TrainedSteps): MassError =>
  new MassError(
    'gate',
    `The training diverged (${message}), so no checkpoint is chosen for you. ` +
      (saved.length === 0
        ? 'It left none; create a new experiment with another recipe.'
        : `Look at its losses, then choose one of the steps ${saved.join(', ')} with: mass export NAME --checkpoint STEP`),
    { details: { saved: [...saved] } },
  );
