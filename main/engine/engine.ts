import { MassError, toErrorData } from '../common/base/errors.ts';
import type { Logger } from '../common/base/logger.ts';
import type { StoredEvent } from '../common/domain/events.ts';
import type { EngineHandlers } from '../node/engine-handlers.ts';
import { requireCycles } from './cycle-generation.ts';
import { SharedVocabulary } from './endpoints/shared-vocabulary.ts';
import { createExperiment, type Experiment, requireExperiment } from './experiments.ts';
import { runDoctor } from './handlers/doctor.ts';
import { evaluationHandlers } from './handlers/evaluation.ts';
import { createExportHandlers } from './handlers/export.ts';
import { integrityHandlers } from './handlers/integrity.ts';
import { modelHandlers } from './handlers/models.ts';
import type { HandlerParts } from './handlers/parts.ts';
import { taskHandlers } from './handlers/tasks.ts';
import { windowHandlers } from './handlers/windows.ts';
import { createDeviceLease } from './lease/lease.ts';
import { estimatePlan } from './plan.ts';
import { prepareRun } from './prepare-run.ts';
import { prunable, prune } from './prune.ts';
import { reconcile } from './reconcile.ts';
import { createRunner } from './runner/runner.ts';
import type { GenerationTarget } from './serve-target.ts';
import { experimentStatus } from './status.ts';
import { openStore, type Store } from './store/store.ts';
import { localWorld, type RunWorld } from './world.ts';

export interface EngineOptions {
  readonly dataFolder: string;
  readonly version: string;
  readonly logger: Logger;
  readonly world?: RunWorld;
}

export interface Engine {
  readonly handlers: EngineHandlers;
  onEvents(listener: (events: readonly StoredEvent[]) => void): () => void;
  /** Ends runs ("after" the units in flight, or "now") and closes the store. */
  shutdown(mode: 'after' | 'now'): Promise<void>;
  idle(): boolean;
}

const settleMs = 5000;

/** Opens the data folder and closes what a dead predecessor left open. The caller holds the folder's lock. */
export async function createEngine(options: EngineOptions): Promise<Engine> {
  const { dataFolder, version, logger } = options;
  const store = openStore(dataFolder);
  const closed = reconcile(store);
  if (closed > 0) logger.log('warn', 'Closed what an earlier engine left open.', { entries: closed });
  const world = options.world ?? localWorld(dataFolder, logger);
  const lease = createDeviceLease<GenerationTarget>((target) => world.serve(target, store));
  const runner = createRunner({
    append: (...events) => void store.append(...events),
    appendEnd: store.appendEnd,
    gates: store.integrity.gates,
    prepare: (order, signal) => prepareRun({ store, world, lease, logger }, order, signal),
    logger,
  });
  const vocabulary = new SharedVocabulary<GenerationTarget>({
    open: (target) => world.openVocabulary(target, store),
    keyOf: (target) => target.key,
  });
  const exporting = createExportHandlers({ store, world, lease, runner });
  const parts: HandlerParts = { store, logger, version };
  const startedAt = Date.now();
  const runOf = (name: string) => runner.active().find((run) => run.order.name === name);

  // What could not be written while the disk was full is written soon after there is room, also when nothing happens.
  const settle = (): void => {
    try {
      store.commitOwed();
    } catch (error) {
      logger.log('warn', 'How something ended cannot be written yet.', { error: toErrorData(error) });
    }
  };
  const settling = setInterval(settle, settleMs).unref();

  const handlers: EngineHandlers = {
    ...modelHandlers(parts),
    ...taskHandlers,
    ...evaluationHandlers({ store, runner }),
    ...exporting.handlers,
    ...integrityHandlers(store),
    ...windowHandlers({ store, vocabulary }),
    'engine.info': async () => ({
      pid: process.pid,
      version,
      dataFolder,
      startedAt,
      lastSeq: store.lastSeq(),
      lease: lease.holder(),
      activeRuns: runner.active().map((run) => ({ experiment: run.order.name, runId: run.runId })),
    }),
    'engine.stop': async ({ mode, experiment }) => {
      if (experiment !== undefined) requireExperiment(store, experiment);
      const runs =
        experiment === undefined ? runner.active() : runner.active().filter((run) => run.order.name === experiment);
      const inFlight = store.episodes
        .openAttempts()
        .filter((row) => runs.some((run) => run.order.experimentId === row.experimentId));
      const lostIfNow = describeLoss(
        store,
        inFlight.map((row) => row.attemptId),
      );
      if (mode === 'preview') return { inFlight: inFlight.map((row) => row.attemptId), lostIfNow, stopped: false };
      for (const run of runs) run.stop(mode);
      await Promise.all(runs.map((run) => run.ended));
      return { inFlight: inFlight.map((row) => row.attemptId), lostIfNow, stopped: runs.length > 0 };
    },
    'doctor.run': ({ repair }, context) => runDoctor(parts, { repair, context }),
    'experiment.create': ({ name, config }) => createExperiment(store, { name, config, massVersion: version }),
    'experiment.list': async () =>
      store.experiments.all().map((row) => ({
        name: row.name,
        createdAt: row.createdAt,
        state: store.experiments.runs(row.experimentId).at(-1)?.state ?? 'new',
        model: requireExperiment(store, row.name).config.model.id,
      })),
    'experiment.status': async ({ name, cycle }) =>
      experimentStatus(store, requireExperiment(store, name), {
        doing: runOf(name)?.doing() ?? null,
        lease: lease.holder(),
        cycle,
      }),
    'experiment.plan': async ({ name, cycles }) => estimatePlan(store, requireExperiment(store, name), cycles),
    'experiment.prune': async ({ name, dryRun }) => {
      const experiment = requireExperiment(store, name);
      if (runOf(name)) throw new MassError('conflict', `"${name}" is running; stop it before pruning.`);
      const kept =
        store.episodes.attemptsOfExperiment(experiment.experimentId).length - prunable(store, experiment).length;
      return { ...(await prune(store, experiment, { dryRun })), kept };
    },
    'run.start': async ({ name, stages, tasks, cycles = [1] }) => {
      const experiment = requireExperiment(store, name);
      requireTasks(store, experiment, tasks ?? []);
      requireCycles(store, experiment, { cycles, stages });
      const run = runner.start({
        experimentId: experiment.experimentId,
        name,
        cycle: cycles[0] ?? 1,
        ...(cycles.length > 1 ? { cycles } : {}),
        config: experiment.config,
        stages,
        tasks: tasks ?? null,
      });
      return { runId: run.runId };
    },
    'run.wait': async ({ runId }, { signal }) => {
      const run = runner.find(runId);
      if (run) return Promise.race([run.ended, rejectOnAbort(signal)]);
      return endedRun(store, runId);
    },
    'events.since': async ({ after, limit, experiment }) =>
      store.eventsSince(
        after,
        limit,
        experiment === undefined ? null : requireExperiment(store, experiment).experimentId,
      ),
    'events.subscribe': async () => ({ lastSeq: store.lastSeq() }),
  };

  return {
    handlers,
    onEvents: (listener) => store.onAppend(listener),
    idle: () => runner.active().length === 0,
    shutdown: async (mode) => {
      const runs = runner.active();
      for (const run of runs) run.stop(mode);
      await Promise.all([...runs.map((run) => run.ended), exporting.stop()]);
      clearInterval(settling);
      settle();
      await lease.dispose();
      await vocabulary.dispose();
      store.close();
    },
  };
}

function describeLoss(store: Store, attemptIds: readonly string[]): string {
  if (attemptIds.length === 0) return 'Nothing is in flight that would be lost.';
  const tokens = attemptIds
    .flatMap((attemptId) => store.threads.ofOwner('attempt', attemptId))
    .flatMap((thread) => store.threads.completions(thread.threadId))
    .reduce((sum, row) => sum + row.completionTokens, 0);
  return `${attemptIds.length} episode${attemptIds.length === 1 ? '' : 's'} in flight with ${tokens} generated tokens would be lost and run again.`;
}

function requireTasks(store: Store, experiment: Experiment, wanted: readonly string[]): void {
  const known = store.tasks.of(experiment.experimentId).map((row) => row.taskId);
  const unknown = wanted.filter((id) => !known.includes(id));
  if (unknown.length > 0)
    throw new MassError(
      'usage',
      `"${experiment.name}" has no task ${unknown.join(', ')}; it has: ${known.join(', ')}.`,
    );
}

function endedRun(store: Store, runId: string) {
  for (const experiment of store.experiments.all()) {
    const run = store.experiments.runs(experiment.experimentId).find((row) => row.runId === runId);
    if (run)
      return {
        state: run.state,
        message: run.message,
        error: run.errorJson === null ? null : (JSON.parse(run.errorJson) as unknown),
      };
  }
  throw new MassError('not_found', `There is no run ${runId}.`);
}

const rejectOnAbort = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new MassError('cancelled', 'Waiting ended; the run goes on.')), {
      once: true,
    });
  });
