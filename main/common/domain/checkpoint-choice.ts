import { MassError } from '../base/errors.ts';

export interface Validation {
  readonly step: number;
  /** token-weighted mean cross-entropy in nats; null when it was not finite */
  readonly loss: number | null;
}

export interface CheckpointChoice {
  readonly step: number;
  /** null when a person chose a step that was not validated */
  readonly loss: number | null;
  readonly by: 'lowest-validation-loss' | 'person';
}

export interface TrainedSteps {
  /** steps with a checkpoint */
  readonly saved: readonly number[];
  readonly validations: readonly Validation[];
}

/**
 * The checkpoint to export: among steps both saved and validated the one of lowest validation loss, the earlier of equals;
 * never step 0, the model before training. Errors: `gate` for a validation loss that is not finite, `usage` when no step
 * qualifies.
 */
export function chooseCheckpoint({ saved, validations }: TrainedSteps): CheckpointChoice {
  const broken = validations.find(({ loss }) => loss === null || !Number.isFinite(loss));
  if (broken !== undefined)
    throw new MassError(
      'gate',
      `The validation loss of step ${broken.step} is not finite, so the training cannot be trusted; look at its losses, then train anew or choose a step with: mass export NAME --checkpoint STEP`,
      { details: { step: broken.step } },
    );
  const candidates = validations.flatMap(({ step, loss }) =>
    step > 0 && loss !== null && saved.includes(step) ? [{ step, loss }] : [],
  );
  const [best] = candidates.sort((a, b) => a.loss - b.loss || a.step - b.step);
  if (best === undefined)
    throw new MassError(
      'usage',
      'No step was both saved and validated; train on, or choose a saved step with: mass export NAME --checkpoint STEP',
      { details: { saved: [...saved], validated: validations.map(({ step }) => step) } },
    );
  return { ...best, by: 'lowest-validation-loss' };
}

/** The step a person wants, when it was saved. Errors: `usage` with the steps that are there. */
export function choiceOfPerson({ saved, validations }: TrainedSteps, step: number): CheckpointChoice {
  if (step < 1 || !saved.includes(step))
    throw new MassError(
      'usage',
      `There is no checkpoint of step ${step}; there are: ${[...saved].filter((known) => known > 0).join(', ') || 'none'}.`,
    );
  return { step, loss: validations.find((known) => known.step === step)?.loss ?? null, by: 'person' };
}
