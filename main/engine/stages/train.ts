import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { MassError, toErrorData } from '../../common/base/errors.ts';
import { requireFreeBytes } from '../../node/free-disk.ts';
import { withDevice } from '../lease/with-device.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { TrainingRow } from '../store/repositories/trainings.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';
import type { CycleServices } from './services.ts';
import { checkpointBytes, type Training, trainingOf } from './train-order.ts';
import { duration, type Planned, TrainingRecorder } from './training-recorder.ts';

/**
 * Trains the adapter of L(cycle) on the cycle's windows, over L(cycle - 1). A training that was stopped, killed or failed
 * goes on from its newest checkpoint; one that is finished is found by its id.
 *
 * Errors: `usage` without current windows; `prerequisite` when memory or disk do not suffice, or Python is missing;
 * `gate` before it begins, and when it diverged; `infrastructure` when the trainer ends: running again goes on.
 */
export function trainStage(services: CycleServices): Stage {
  return {
    name: 'train',
    run: async (context) => {
      if (isMade(services, context)) return { complete: true, message: `L${context.cycle} is made.` };
      const training = await trainingOf(services, context);
      const row = services.store.trainings.byId(training.trainingId);
      if (row && isOver(services, row)) return { complete: true, message: summary(services, row) };
      if (context.draining()) return { complete: false, message: '' };
      const trainer = await services.trainer();
      const planned = await planTraining(services, context, { training, trainer });
      await context.gate('before-train', question(services, context, { training, ...planned }));
      if (context.draining()) return { complete: false, message: '' };
      return train(services, context, { training, trainer, ...planned });
    },
  };
}

const isMade = ({ store }: CycleServices, { experimentId, cycle }: StageContext): boolean =>
  store.experiments.generations(experimentId).some((row) => row.number === cycle);

/** Nothing is left to train. Errors: `gate` for one that diverged and of which nobody has chosen a checkpoint. */
function isOver({ store, dataFolder }: CycleServices, row: TrainingRow): boolean {
  if (row.state === 'diverged') {
    if (store.trainings.choice(row.trainingId)) return true;
    throw diverged(
      row.message,
      store.trainings.checkpoints(row.trainingId).map(({ step }) => step),
    );
  }
  const last = store.trainings.checkpoints(row.trainingId).at(-1);
  return row.state === 'finished' && last !== undefined && existsSync(join(dataFolder, last.folder));
}

interface Worker {
  readonly training: Training;
  readonly trainer: TrainerEngine;
}

/** What training will take, measured on the free device. Errors: `prerequisite` when memory or disk do not suffice. */
async function planTraining(services: CycleServices, context: StageContext, worker: Worker): Promise<Planned> {
  const { training, trainer } = worker;
  const { signal } = context;
  context.doing('train: waiting for the device, to plan');
  const claim = { label: deviceLabel(services, context), signal, draining: context.draining };
  const planned = await withDevice(services.lease, claim, async () => {
    context.doing('train: planning');
    const capabilities = await trainer.capabilities(signal);
    return { plan: await trainer.plan(training.order, signal), capabilities };
  });
  const { plan } = planned;
  const message = planText(services, context, { training, ...planned });
  if (!plan.fits)
    throw new MassError(
      'prerequisite',
      `Training does not fit: it needs ${gigabytes(plan.neededBytes)} of memory for windows of ${count(plan.longestWindow)} tokens ` +
        `and ${gigabytes(plan.freeBytes)} are free; render shorter windows, lower train.rank, or free memory.`,
      { details: { plan } },
    );
  const saved = services.store.trainings.checkpoints(training.trainingId).length;
  const bytes = checkpointBytes(training.order.recipe, plan.trainable, saved);
  await requireFreeBytes(services.dataFolder, bytes, 'Training');
  const { experimentId } = context;
  services.store.append({ type: 'notice', experimentId, level: 'info', code: 'training-plan', message });
  return planned;
}

/** So many starts in a row without a new checkpoint, and a failing trainer is left to a person. */
const mostFruitless = 3;

/** A trainer that ended by infrastructure is started again from its newest checkpoint: nights are long. */
async function train(
  services: CycleServices,
  context: StageContext,
  worker: Worker & Planned,
): ReturnType<Stage['run']> {
  const { trainingId } = worker.training;
  const newest = (): number => services.store.trainings.checkpoints(trainingId).at(-1)?.step ?? 0;
  for (let fruitless = 0; ; ) {
    const before = newest();
    try {
      return await trainOnce(services, context, worker);
    } catch (error) {
      fruitless = newest() > before ? 0 : fruitless + 1;
      const { code, message } = toErrorData(error);
      if (code !== 'infrastructure' || fruitless >= mostFruitless || context.draining()) throw error;
      services.logger.log('warn', 'The trainer ended and is started again.', { trainingId, from: newest(), message });
      context.doing(`train: starting the trainer again at step ${newest()}`);
      await sleep(services.retryDelay(Math.max(0, fruitless - 1)), undefined, { signal: context.signal });
    }
  }
}

/** Resolves when the training has ended by itself; its end is recorded, however it comes. */
async function trainOnce(
  services: CycleServices,
  context: StageContext,
  worker: Worker & Planned,
): ReturnType<Stage['run']> {
  const { training, trainer } = worker;
  const { signal, draining } = context;
  context.doing('train: waiting for the device');
  const recorder = new TrainingRecorder(services, context, worker);
  try {
    const done = await withDevice(services.lease, { label: deviceLabel(services, context), signal, draining }, () => {
      context.doing('train: loading the model');
      return trainer.train(training.order, { signal, draining, onEvent: (event) => recorder.take(event) });
    });
    recorder.end(done.state, done.step, done.message);
    if (done.state === 'diverged') throw diverged(done.message, recorder.savedSteps());
    return { complete: done.state === 'finished', message: summary(services, recorder.row()) };
  } catch (error) {
    recorder.fail(error);
    throw error;
  }
}

const nameOf = ({ store }: CycleServices, { experimentId }: StageContext): string =>
  store.experiments.byId(experimentId)?.name ?? experimentId;
const deviceLabel = (services: CycleServices, context: StageContext): string =>
  `train L${context.cycle} for "${nameOf(services, context)}"`;

const count = (value: number): string => value.toLocaleString('en-US');
const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;
function planText(
  { generation }: CycleServices,
  { cycle }: StageContext,
  { training, plan, capabilities }: Planned & { readonly training: Training },
): string {
  const { manifest, order } = training;
  const { windows = 0, tokens = 0, labelledTokens = 0 } = manifest.bySplit.train ?? {};
  const { steps, windowsPerStep } = order.recipe;
  return (
    `Training L${cycle} on L${generation.number}: ${count(windows)} windows of ${count(tokens)} tokens (${count(labelledTokens)} trained), ` +
    `${count(steps)} steps of ${windowsPerStep} windows, about ${duration(plan.hours * 3600)} (${plan.assumption}), ` +
    `${gigabytes(plan.neededBytes)} of ${gigabytes(plan.freeBytes)} free memory, on ${capabilities.device}.`
  );
}

function question(services: CycleServices, context: StageContext, given: Planned & { readonly training: Training }) {
  const { training, plan } = given;
  const { bySplit, byTask } = training.manifest;
  const details = { trainingId: training.trainingId, recipe: training.order.recipe, plan, bySplit, byTask };
  return { message: planText(services, context, given), details, about: [training.trainingId] };
}

function summary({ store }: CycleServices, { trainingId, step, steps, message }: TrainingRow): string {
  const measured = store.trainings.validations(trainingId).filter(({ loss }) => loss !== null);
  const [first, last] = [measured[0], measured.at(-1)];
  const losses = first && last ? `; validation loss ${first.loss?.toFixed(4)} -> ${last.loss?.toFixed(4)}` : '';
  return `${count(step)} of ${count(steps)} steps${losses}. ${message}`;
}

const diverged = (message: string, saved: readonly number[]): MassError =>
  new MassError(
    'gate',
    `${message} ${
      saved.length === 0
        ? 'It left no checkpoint; create a new experiment with a lower train.learningRate.'
        : `Look at its losses, then choose one of the steps ${saved.join(', ')} with: mass export NAME --checkpoint STEP`
    }`,
    { details: { saved: [...saved] } },
  );
