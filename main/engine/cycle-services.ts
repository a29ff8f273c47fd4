import { mkdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MassError } from '../common/base/errors.ts';
import type { Logger } from '../common/base/logger.ts';
import type { Task } from '../common/domain/task.ts';
import type { EpisodeRequest } from './agents/agent-runtime.ts';
import { createTeamRuntime } from './agents/team/team-runtime.ts';
import { createFileTools } from './agents/tools/files.ts';
import type { Vocabulary } from './endpoints/vocabulary.ts';
import type { Experiment } from './experiments.ts';
import type { ScoreRequest, ScoreServed } from './export/served-scores.ts';
import type { DeviceLease } from './lease/lease.ts';
import type { Sandbox } from './sandbox/sandbox.ts';
import { type GenerationTarget, requireGeneration, serveTarget } from './serve-target.ts';
import type { CycleServices } from './stages/services.ts';
import type { GenerationRow } from './store/repositories/experiments.ts';
import type { Store } from './store/store.ts';
import { ensureTaskData, placeTaskData, type RunDataScript } from './tasks/task-data.ts';
import { readTask } from './tasks/task-library.ts';
import type { TrainerEngine } from './trainer/trainer-engine.ts';

export interface CycleServicesParts {
  readonly store: Store;
  readonly experiment: Experiment;
  /** plays every part */
  readonly generation: GenerationRow;
  readonly lease: DeviceLease<GenerationTarget>;
  readonly openVocabulary: (target: GenerationTarget) => Promise<Vocabulary>;
  readonly openTrainer: () => Promise<TrainerEngine>;
  readonly scoreServed: (target: GenerationTarget, request: ScoreRequest) => ReturnType<ScoreServed>;
  readonly llamaSources: (signal: AbortSignal) => Promise<string>;
  readonly sandbox: Sandbox;
  readonly environment: EpisodeRequest['environment'];
  readonly logger: Logger;
  readonly retryDelay?: (retry: number) => number;
}

/** Everything the stages of one run work with, from parts that were started for it. */
export function createCycleServices(parts: CycleServicesParts): CycleServices {
  const { store, experiment, generation, sandbox, lease } = parts;
  const dataCache = join(store.folder, 'task-data');
  return {
    store,
    dataFolder: store.folder,
    generation,
    generationId: generation.generationId,
    endpoints: lease.endpointsOf(serveTarget(experiment, generation)),
    generationOf: (generationId) => requireGeneration(store, experiment, generationId),
    endpointsOf: (generationId) =>
      lease.endpointsOf(serveTarget(experiment, requireGeneration(store, experiment, generationId))),
    openVocabulary: () => parts.openVocabulary(serveTarget(experiment, generation)),
    lease,
    trainer: once(parts.openTrainer),
    scoreServed: (row, request) => parts.scoreServed(serveTarget(experiment, row), request),
    llamaSources: parts.llamaSources,
    runtime: createTeamRuntime({ createFiles: createFileTools }),
    sandbox,
    environment: parts.environment,
    loadTask: (taskId) => loadTask(store, experiment, taskId),
    placeInputs: async (task, workspace) => {
      if (!task.manifest.data) return [];
      await mkdir(dataCache, { recursive: true });
      const data = await ensureTaskData({ task, cacheRoot: dataCache, runScript: dataScriptRunner(parts) });
      await placeTaskData(data, workspace);
      return data.files.map((file) => ({ ...file, path: `data/${file.path}` }));
    },
    logger: parts.logger,
    retryDelay: parts.retryDelay ?? ((retry) => 1000 * 4 ** retry),
  };
}

/** The same value for every caller; after a failure the next caller tries again. */
function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | null = null;
  return () => {
    opened ??= open().catch((error: unknown) => {
      opened = null;
      throw error;
    });
    return opened;
  };
}

async function loadTask(store: Store, experiment: Experiment, taskId: string): Promise<Task> {
  const row = store.tasks.of(experiment.experimentId).find((candidate) => candidate.taskId === taskId);
  if (!row) throw new MassError('not_found', `"${experiment.name}" has no task "${taskId}".`);
  const task = await readTask(row.folder);
  if (task.contentHash === row.contentHash) return task;
  throw new MassError(
    'conflict',
    `The task "${taskId}" in ${row.folder} has changed since "${experiment.name}" was created; restore it, or create a new experiment.`,
  );
}

/** Task scripts are the library's, not the model's, and still run in the sandbox: a shared library is somebody's code. */
function dataScriptRunner({ sandbox, environment, experiment }: CycleServicesParts): RunDataScript {
  return async (script, args, outDir) => {
    await sandbox.createWorkspace(outDir);
    const inside = '/task-script';
    const result = await sandbox.run({
      command: `python3 ${inside}/${shellWord(basename(script))} /workspace ${args.map(shellWord).join(' ')}`,
      workspace: outDir,
      limits: experiment.config.sandbox,
      wallSeconds: 600,
      outputBytes: 16_384,
      readOnlyMounts: { ...environment.mounts, [dirname(script)]: inside },
      env: environment.env,
    });
    if (result.exitCode !== 0)
      throw new MassError(
        'infrastructure',
        `The data script ${basename(script)} ended with ${result.exitCode ?? result.signal ?? result.limit}.`,
        {
          details: { stderr: result.stderr.slice(-2000) },
        },
      );
  };
}

const shellWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
