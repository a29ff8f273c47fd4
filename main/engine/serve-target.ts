import { join } from 'node:path';
import { MassError } from '../common/base/errors.ts';
import { canonicalJson } from '../node/hashing.ts';
import type { Experiment } from './experiments.ts';
import type { ServeTarget } from './lease/lease.ts';
import type { GenerationRow } from './store/repositories/experiments.ts';
import type { Store } from './store/store.ts';

/** A generation of an experiment, to be served with the experiment's model settings. */
export interface GenerationTarget extends ServeTarget {
  readonly experiment: Experiment;
  readonly generation: GenerationRow;
}

/** Two generations with the same weights and settings are one target, whichever experiment asks. */
export function serveTarget(experiment: Experiment, generation: GenerationRow): GenerationTarget {
  const { model } = experiment.config;
  return {
    key: canonicalJson({ model, sha256: generation.modelSha256, adapter: generation.adapterSha256 }),
    label: `serve ${model.id} as L${generation.number} for "${experiment.name}"`,
    experiment,
    generation,
  };
}

/** Errors: `not_found` for a generation that is not the experiment's. */
export function requireGeneration(store: Store, experiment: Experiment, generationId: string): GenerationRow {
  const row = store.experiments
    .generations(experiment.experimentId)
    .find((generation) => generation.generationId === generationId);
  if (!row) throw new MassError('not_found', `"${experiment.name}" has no generation ${generationId}.`);
  return row;
}

/** Where the adapter (GGUF) of a generation lies: named by its content, written once. */
export const adapterFile = (dataFolder: string, sha256: string): string =>
  join(dataFolder, 'adapters', `${sha256}.gguf`);
