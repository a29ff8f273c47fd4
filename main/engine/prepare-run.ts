import type { Logger } from '../common/base/logger.ts';
import type { StageName } from '../common/domain/events.ts';
import { generationOfOrder } from './cycle-generation.ts';
import { createCycleServices } from './cycle-services.ts';
import { type Experiment, requireExperiment } from './experiments.ts';
import type { DeviceLease } from './lease/lease.ts';
import type { RunOrder } from './runner/runner.ts';
import type { Stage } from './runner/stage.ts';
import { type GenerationTarget, serveTarget } from './serve-target.ts';
import { collectStage } from './stages/collect.ts';
import { compareStage } from './stages/compare.ts';
import { exportStage } from './stages/export.ts';
import { rankStage } from './stages/rank.ts';
import { renderStage } from './stages/render.ts';
import { rolloutStage } from './stages/rollout.ts';
import { searchStage } from './stages/search.ts';
import { selectStage } from './stages/select.ts';
import { trainStage } from './stages/train.ts';
import type { Store } from './store/store.ts';
import type { RunWorld } from './world.ts';

export interface PrepareParts {
  readonly store: Store;
  readonly world: RunWorld;
  readonly lease: DeviceLease<GenerationTarget>;
  readonly logger: Logger;
}

/** Stages whose first unit asks the model: it is loaded before they start, so that one that cannot be is refused at once. */
const modelStages: readonly StageName[] = ['search', 'collect', 'rank', 'rollout', 'compare'];

/** Starts what a run needs, in an order in which the cheap refusals come first. */
export async function prepareRun(
  { store, world, lease, logger }: PrepareParts,
  order: RunOrder,
  signal: AbortSignal,
): Promise<{ stages: readonly Stage[]; dispose(): Promise<void> }> {
  const experiment = requireExperiment(store, order.name);
  const generation = generationOfOrder(store, experiment, order);
  const sandbox = await world.openSandbox(experiment);
  if (sandbox.mode === 'host') warnUnprotected(store, experiment);
  const onProgress = (message: string): void => {
    logger.log('info', message);
    store.append({
      type: 'notice',
      experimentId: experiment.experimentId,
      level: 'info',
      code: 'environment',
      message,
    });
  };
  const first = order.stages[0];
  if (first !== undefined && modelStages.includes(first) && !isDone(store, order, first))
    await lease.prepare(serveTarget(experiment, generation));
  // Made once, which takes a minute: only after a model that cannot be loaded has refused the run.
  const environment = await world.openEnvironment(signal, onProgress).catch(async (error: unknown) => {
    await lease.release();
    throw error;
  });
  const services = createCycleServices({
    store,
    experiment,
    generation,
    lease,
    openVocabulary: (target) => world.openVocabulary(target, store),
    openTrainer: () => world.openTrainer(signal, onProgress),
    scoreServed: (target, request) => world.scoreServed(target, store, request),
    llamaSources: (signal) => world.openLlamaSources(signal),
    sandbox,
    environment,
    logger,
    ...(world.retryDelay ? { retryDelay: world.retryDelay } : {}),
  });
  return {
    stages: [
      searchStage(services),
      collectStage(services),
      rankStage(services),
      selectStage(services),
      renderStage(services),
      trainStage(services),
      exportStage(services),
      ...(order.subject === undefined
        ? []
        : [rolloutStage(services, order.subject), compareStage(services, order.subject)]),
    ],
    dispose: () => lease.release(),
  };
}

/** A stage of an earlier run that has nothing left to do, so that a model need not be loaded to find that out. */
const isDone = (store: Store, { experimentId, cycle, subject }: RunOrder, stage: StageName): boolean =>
  subject === undefined &&
  store.experiments
    .stages(experimentId)
    .some((row) => row.cycle === cycle && row.stage === stage && row.state === 'done');

function warnUnprotected(store: Store, { experimentId }: Experiment): void {
  store.append({
    type: 'notice',
    experimentId,
    level: 'warning',
    code: 'sandbox-off',
    message: 'Model-written commands run on this machine unprotected (sandbox.mode is "host").',
  });
}
