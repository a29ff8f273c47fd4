import { join } from 'node:path';
import { MassError } from '../common/base/errors.ts';
import type { Logger } from '../common/base/logger.ts';
import type { LoadOrder } from '../common/protocol/inference.ts';
import type { EpisodeRequest } from './agents/agent-runtime.ts';
import { startInference } from './endpoints/inference-process.ts';
import { createLocalEndpoints } from './endpoints/local-endpoint.ts';
import { scoreServed } from './endpoints/score-served.ts';
import type { Vocabulary } from './endpoints/vocabulary.ts';
import { startVocabulary } from './endpoints/vocabulary-process.ts';
import type { Experiment } from './experiments.ts';
import type { ScoreRequest } from './export/served-scores.ts';
import { requireModel } from './handlers/models.ts';
import type { Serving } from './lease/lease.ts';
import { memoryReleased } from './lease/memory-released.ts';
import { createSandbox } from './sandbox/detect.ts';
import { ensurePythonEnvironment } from './sandbox/python-environment.ts';
import type { Sandbox } from './sandbox/sandbox.ts';
import { adapterFile, type GenerationTarget } from './serve-target.ts';
import { recordCompletion } from './stages/record-completion.ts';
import type { ModelRow } from './store/repositories/models.ts';
import type { Store } from './store/store.ts';
import { ensureLlamaSources } from './trainer/llama-sources.ts';
import { createPythonTrainer } from './trainer/python-trainer.ts';
import type { TrainerEngine } from './trainer/trainer-engine.ts';
import { ensureTrainerEnvironment } from './trainer/trainer-environment.ts';

/** The parts of a run that are processes or files of this machine; tests give scripted ones. */
export interface RunWorld {
  serve(target: GenerationTarget, store: Store): Promise<Serving>;
  /** Of the model that `serve` would load; holds no device. */
  openVocabulary(target: GenerationTarget, store: Store): Promise<Vocabulary>;
  openSandbox(experiment: Experiment): Promise<Sandbox>;
  openEnvironment(signal: AbortSignal, onProgress: (message: string) => void): Promise<EpisodeRequest['environment']>;
  /** Makes the trainer's environment when it is not there; starts nothing yet. Errors: `prerequisite`, `infrastructure`. */
  openTrainer(signal: AbortSignal, onProgress: (message: string) => void): Promise<TrainerEngine>;
  /** Loads what `serve` would in a process of its own, for fixed prompts; it has ended when this resolves. */
  scoreServed(target: GenerationTarget, store: Store, request: ScoreRequest): Promise<{ readonly vocabulary: number }>;
  /** Folder of llama.cpp's conversion scripts. Errors: `prerequisite`. */
  openLlamaSources(signal: AbortSignal): Promise<string>;
  readonly retryDelay?: (retry: number) => number;
}

/** The real world: a supervised llama.cpp process, bubblewrap, and the locked Python environment. */
export function localWorld(dataFolder: string, logger: Logger): RunWorld {
  return {
    openSandbox: (experiment) => createSandbox(experiment.config.sandbox.mode, logger),
    openEnvironment: async (signal, onProgress) => {
      const python = await ensurePythonEnvironment({ root: join(dataFolder, 'python'), signal, onProgress });
      return { mounts: python.mounts, env: python.env, description: python.description };
    },
    openVocabulary: async (target, store) => {
      const { modelId, path } = requireUnchanged(target, store);
      return startVocabulary({ path, modelId, logger });
    },
    openTrainer: async (signal, onProgress) => {
      const root = join(dataFolder, 'python');
      const { python } = await ensureTrainerEnvironment({ root, signal, onProgress });
      return createPythonTrainer({ python, logger });
    },
    scoreServed: async (target, store, request) => {
      const { vocabulary, pid } = await scoreServed({
        order: loadOrder({ target, store, dataFolder }),
        ...request,
        logger,
      });
      await memoryReleased(pid);
      return { vocabulary };
    },
    openLlamaSources: (signal) => ensureLlamaSources({ root: dataFolder, signal }),
    serve: (target, store) => serveLocally({ target, store, dataFolder, logger }),
  };
}

interface LocalServing {
  readonly target: GenerationTarget;
  readonly store: Store;
  readonly dataFolder: string;
  readonly logger: Logger;
}

async function serveLocally(serving: LocalServing): Promise<Serving> {
  const { store, logger } = serving;
  const inference = await startInference({
    order: loadOrder(serving),
    onRecord: async (record) => recordCompletion(store, record),
    logger,
  });
  const endpoints = createLocalEndpoints(inference);
  return {
    endpoints,
    dispose: async () => {
      const { pid } = inference;
      await endpoints.dispose();
      await inference.dispose();
      await memoryReleased(pid);
    },
  };
}

function loadOrder({ target, store, dataFolder }: Omit<LocalServing, 'logger'>): LoadOrder {
  const { path, sha256 } = requireUnchanged(target, store);
  const { adapterSha256 } = target.generation;
  const adapter =
    adapterSha256 === null ? null : { path: adapterFile(dataFolder, adapterSha256), sha256: adapterSha256 };
  return { model: target.experiment.config.model, path, sha256, adapter };
}

/** The model's file, as it was when the experiment was created. Errors: `conflict`, `not_found`. */
function requireUnchanged({ experiment, generation }: GenerationTarget, store: Store): ModelRow {
  const { model } = experiment.config;
  const row = requireModel(store, model.id);
  if (generation.modelSha256 === row.sha256) return row;
  throw new MassError(
    'conflict',
    `The file of "${model.id}" is not the one "${experiment.name}" was created with; restore it, or create a new experiment.`,
  );
}
