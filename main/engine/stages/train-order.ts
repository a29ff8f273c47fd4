import { isAbsolute, join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { ExperimentConfig } from '../../common/domain/config.ts';
import { WindowManifest } from '../../common/domain/window-set.ts';
import type { TrainerRecipe, TrainOrder } from '../../common/protocol/trainer.ts';
import { canonicalJson, sha256 } from '../../node/hashing.ts';
import type { StageContext } from '../runner/stage.ts';
import type { WindowSetRow } from '../store/repositories/window-sets.ts';
import { lineageCheckpoints, trainerModelOf } from './adapter-lineage.ts';
import { windowSetIdOf } from './render.ts';
import type { CycleServices } from './services.ts';
import { holdsWindowSet } from './window-set-writer.ts';

/** What one training is: the same inputs give the same id, so that running again finds it. */
export interface Training {
  readonly trainingId: string;
  /** checkpoints lie in it; relative to the data folder */
  readonly folder: string;
  readonly windowSetId: string;
  readonly manifest: WindowManifest;
  readonly order: TrainOrder;
}

/** Errors: `usage` without current windows or with a relative base folder; `conflict` when the model's file is another. */
export async function trainingOf(services: CycleServices, context: StageContext): Promise<Training> {
  const { store, dataFolder, generation } = services;
  const { experimentId, cycle, config } = context;
  const windows = await requireWindows(services, context);
  const manifest = WindowManifest.parse(store.artifacts.json(windows.manifestHash));
  const recipe = recipeOf(config, manifest.bySplit.train?.windows ?? 0);
  const { base } = config.train;
  if (base !== null && !isAbsolute(base))
    throw new MassError(
      'usage',
      `train.base must be an absolute path, not "${base}"; create a new experiment with one.`,
    );
  const parent = {
    modelSha256: generation.modelSha256,
    adapters: lineageCheckpoints(store, generation).map(({ adapterSha256 }) => adapterSha256),
  };
  const key = { experimentId, cycle, windows: windows.manifestHash, parent, base, recipe };
  const trainingId = `tr_${sha256(canonicalJson(key)).slice(0, 12)}`;
  const folder = join('trainings', trainingId);
  return {
    trainingId,
    folder,
    windowSetId: windows.windowSetId,
    manifest,
    order: {
      model: trainerModelOf(store, { config, generation }),
      servedGguf: servedGguf(services),
      windows: join(dataFolder, windows.folder),
      output: join(dataFolder, folder),
      recipe,
      machine: {
        device: config.train.device,
        threads: config.train.threads,
        allowSlowKernels: config.train.allowSlowKernels,
      },
    },
  };
}

/** The cycle's windows, when they are those of its present selection. */
async function requireWindows(services: CycleServices, context: StageContext): Promise<WindowSetRow> {
  const { store, dataFolder } = services;
  const { experimentId, cycle } = context;
  const name = store.experiments.byId(experimentId)?.name ?? experimentId;
  const render = `mass render ${name}${cycle > 1 ? ` --cycle ${cycle}` : ''}`;
  const row = store.windowSets.ofCycle({ experimentId, cycle });
  if (!row) throw new MassError('usage', `Training needs the windows of cycle ${cycle}; run: ${render}`);
  if (row.windowSetId !== windowSetIdOf(services, context))
    throw new MassError('usage', `The windows of cycle ${cycle} are not those of its selection; run: ${render}`);
  if (!(await holdsWindowSet(join(dataFolder, row.folder), row.manifestHash)))
    throw new MassError('usage', `The windows of cycle ${cycle} are not in ${row.folder} any more; run: ${render}`);
  return row;
}

/** The configuration's recipe for so many training windows; what it does not name is method.md's. Errors: `usage`. */
export function recipeOf({ train }: Pick<ExperimentConfig, 'train'>, trainWindows: number): TrainerRecipe {
  if (trainWindows === 0) throw new MassError('usage', 'No window is to be trained on; select runs for training.');
  const steps = train.steps ?? Math.ceil((train.epochs * trainWindows) / train.windowsPerStep);
  const {
    rank,
    alpha,
    dropout,
    windowsPerStep,
    learningRate,
    checkpointEvery,
    validateEvery,
    patience,
    lossChunk,
    seed,
  } = train;
  return {
    ...{ rank, alpha, dropout, steps, windowsPerStep, learningRate },
    warmupSteps: Math.min(train.warmupSteps, steps),
    finalShare: 0.1,
    betas: [0.9, 0.95],
    weightDecay: 0,
    gradNorm: 1,
    orchestratorShare: 1 / 3,
    ...{ checkpointEvery, validateEvery, patience, lossChunk, seed },
  };
}

/** The served file, whose vocabulary the trainer proves to be its own. */
function servedGguf({ store, generation }: CycleServices): string {
  const model = store.models.byId(generation.modelId);
  if (model?.sha256 === generation.modelSha256) return model.path;
  throw new MassError(
    'conflict',
    `The file of "${generation.modelId}" is not the one L${generation.number} is made of; restore it.`,
  );
}

/**
 * Bytes on disk that a training still takes: every checkpoint keeps its adapter (float32), the newest two (and the one
 * being written) twice that for the optimizer.
 */
export function checkpointBytes({ steps, checkpointEvery }: TrainerRecipe, trainable: number, saved: number): number {
  const planned = Math.ceil(steps / checkpointEvery);
  const adapter = 4 * trainable;
  return Math.ceil(1.05 * (Math.max(0, planned - saved) * adapter + 3 * 2 * adapter)) + 50e6;
}
