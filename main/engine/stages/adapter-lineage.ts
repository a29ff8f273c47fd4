import { join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { ExperimentConfig } from '../../common/domain/config.ts';
import type { TrainerModel } from '../../common/protocol/trainer.ts';
import type { GenerationRow } from '../store/repositories/experiments.ts';
import type { CheckpointRow } from '../store/repositories/trainings.ts';
import type { Store } from '../store/store.ts';

/**
 * A generation as the trainer knows it: the base and the PEFT folders of every ancestor, oldest first. L0 has none.
 * Errors: `internal` when a generation has no training behind it.
 */
export function trainerModelOf(
  store: Store,
  { config, generation }: { readonly config: ExperimentConfig; readonly generation: GenerationRow },
): TrainerModel {
  const model = store.models.byId(generation.modelId);
  if (!model) throw new MassError('not_found', `The model "${generation.modelId}" is no longer registered.`);
  const { base } = config.train;
  return {
    base: base === null ? { kind: 'gguf', path: model.path } : { kind: 'folder', path: base },
    merged: lineageCheckpoints(store, generation).map(({ folder }) => join(store.folder, folder)),
  };
}

/** The checkpoints that L1 to L(number) are made of, oldest first; none for L0. Errors: `internal`. */
export const lineageCheckpoints = (store: Store, generation: GenerationRow): CheckpointRow[] =>
  Array.from({ length: generation.number }, (_, i) => chosenCheckpoint(store, generation, i + 1));

/** L(k) is the chosen checkpoint of cycle k's training. */
function chosenCheckpoint(store: Store, { experimentId }: GenerationRow, cycle: number): CheckpointRow {
  const training = store.trainings.ofCycle({ experimentId, cycle });
  const choice = training && store.trainings.choice(training.trainingId);
  const checkpoint =
    training && store.trainings.checkpoints(training.trainingId).find(({ step }) => step === choice?.step);
  if (!checkpoint) throw new MassError('internal', `L${cycle} has no chosen checkpoint behind it.`);
  return checkpoint;
}
