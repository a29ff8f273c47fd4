import { isAbsolute } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { choiceOfPerson } from '../../common/domain/checkpoint-choice.ts';
import { ParityReport } from '../../common/domain/parity-report.ts';
import type { ParamsOf } from '../../common/protocol/engine.ts';
import type { ExportReport, MergedModel } from '../../common/protocol/export.ts';
import type { EngineHandlers, HandlerContext } from '../../node/engine-handlers.ts';
import { generationNumbered } from '../cycle-generation.ts';
import { type Experiment, requireExperiment } from '../experiments.ts';
import { cardPath } from '../export/generation-folder.ts';
import { checkMerge, type MergeWish, mergeGeneration } from '../export/merge-generation.ts';
import { requireTrained, trainedSteps } from '../export/trained-checkpoint.ts';
import type { DeviceLease } from '../lease/lease.ts';
import { withDevice } from '../lease/with-device.ts';
import type { createRunner } from '../runner/runner.ts';
import { adapterFile, type GenerationTarget } from '../serve-target.ts';
import { trainerModelOf } from '../stages/adapter-lineage.ts';
import type { TrainingRow } from '../store/repositories/trainings.ts';
import type { Store } from '../store/store.ts';
import type { RunWorld } from '../world.ts';
import { requireModel } from './models.ts';

export interface ExportParts {
  readonly store: Store;
  readonly world: RunWorld;
  readonly lease: DeviceLease<GenerationTarget>;
  readonly runner: ReturnType<typeof createRunner>;
}

type Methods = 'export.show' | 'export.choose' | 'export.merge';

/** Choosing a checkpoint by hand, and merged models. `stop` ends merges in progress and waits until they have ended. */
export function createExportHandlers(parts: ExportParts): {
  readonly handlers: Pick<EngineHandlers, Methods>;
  stop(): Promise<void>;
} {
  const { store, runner } = parts;
  const stopping = new AbortController();
  const merges = new Set<Promise<MergedModel>>();
  return {
    handlers: {
      'export.show': async ({ name, cycle }) => exportReport(store, requireExperiment(store, name), cycle),
      'export.choose': async ({ name, cycle, step, note }) => {
        const experiment = requireExperiment(store, name);
        if (runner.active().some((run) => run.order.experimentId === experiment.experimentId))
          throw new MassError('conflict', `"${name}" is running; choose when it has ended, or stop it.`);
        choose(store, experiment, { cycle, step, note });
        return exportReport(store, experiment, cycle);
      },
      'export.merge': async (wish, context) => {
        const signal = AbortSignal.any([context.signal, stopping.signal]);
        const merge = mergeOf(parts, wish, { ...context, signal });
        merges.add(merge);
        return merge.finally(() => merges.delete(merge));
      },
    },
    stop: async () => {
      stopping.abort();
      await Promise.allSettled(merges);
    },
  };
}

/** Errors: `conflict` once registered, `usage` for a step without a checkpoint. */
function choose(
  store: Store,
  { experimentId, name }: Experiment,
  { cycle, step, note }: { cycle: number; step: number; note: string },
): void {
  if (store.experiments.generations(experimentId).some((row) => row.number === cycle))
    throw new MassError(
      'conflict',
      `L${cycle} of "${name}" is registered and never changes; for another checkpoint create a new experiment.`,
    );
  const training = requireTrained(store, { experimentId, cycle });
  const { loss } = choiceOfPerson(trainedSteps(store, training), step);
  store.append({
    type: 'checkpoint.chosen',
    trainingId: training.trainingId,
    experimentId,
    step,
    loss,
    by: 'person',
    note,
  });
}

function exportReport(store: Store, experiment: Experiment, cycle: number): ExportReport {
  const { experimentId } = experiment;
  const training = store.trainings.ofCycle({ experimentId, cycle });
  const generation = store.experiments.generations(experimentId).find((row) => row.number === cycle);
  const registered =
    generation === undefined || generation.adapterSha256 === null
      ? null
      : { number: cycle, adapterSha256: generation.adapterSha256, card: cardPath(experiment, generation) };
  const nothing = { training: null, checkpoints: [], choice: null, adapter: null, parity: null };
  return { cycle, ...(training ? trainingReport(store, training) : nothing), generation: registered };
}

function trainingReport(store: Store, training: TrainingRow): Omit<ExportReport, 'cycle' | 'generation'> {
  const { trainingId, state, step, steps } = training;
  const choice = store.trainings.choice(trainingId);
  const key = choice && { trainingId, step: choice.step };
  const exported = key && store.trainings.exported(key);
  const parity = key && store.trainings.parity(key);
  const { validations } = trainedSteps(store, training);
  return {
    training: { trainingId, state, step, steps },
    checkpoints: store.trainings.checkpoints(trainingId).map((row) => ({
      step: row.step,
      bytes: row.bytes,
      loss: validations.find((known) => known.step === row.step)?.loss ?? null,
      chosen: row.step === choice?.step,
    })),
    choice: choice ? { step: choice.step, by: choice.chosenBy, note: choice.note } : null,
    adapter: exported
      ? {
          sha256: exported.adapterSha256,
          path: adapterFile(store.folder, exported.adapterSha256),
          bytes: exported.bytes,
          rank: exported.rank,
        }
      : null,
    parity: parity ? ParityReport.parse(store.artifacts.json(parity.reportHash)) : null,
  };
}

/** What `mergeGeneration` does one after another. */
const mergeSteps = 2;

async function mergeOf(
  { store, world, lease, runner }: ExportParts,
  { name, cycle, type, out }: ParamsOf<'export.merge'>,
  { signal, progress }: HandlerContext,
): Promise<MergedModel> {
  const experiment = requireExperiment(store, name);
  const generation = generationNumbered(store, experiment, cycle);
  if (!isAbsolute(out)) throw new MassError('usage', 'The folder to merge into must be an absolute path.');
  const [active] = runner.active();
  if (active)
    throw new MassError('conflict', `"${active.order.name}" is running and needs the device; merge when it has ended.`);
  const { config } = experiment;
  const { device, threads, allowSlowKernels } = config.train;
  const wish: MergeWish = {
    model: trainerModelOf(store, { config, generation }),
    servedGguf: requireModel(store, generation.modelId).path,
    title: `${/^[\w.-]+$/.test(name) ? name : experiment.experimentId}-L${cycle}`,
    type,
    out,
    card: generation.cardHash === null ? '' : store.artifacts.text(generation.cardHash),
    machine: { device, threads, allowSlowKernels },
  };
  await checkMerge(wish);
  const say = (label: string, done: number): void =>
    progress({ label, done, total: mergeSteps, unit: 'steps', etaSeconds: null });
  const trainer = await world.openTrainer(signal, (label) => say(label, 0));
  const llamaCpp = await world.openLlamaSources(signal);
  say('waiting for the device', 0);
  const label = `merge L${cycle} of "${name}"`;
  let begun = 0;
  const doing = (what: string): void => say(what, begun++);
  const merged = await withDevice(lease, { label, signal }, () =>
    mergeGeneration(wish, { trainer, llamaCpp, doing, signal }),
  );
  store.append({
    type: 'notice',
    experimentId: experiment.experimentId,
    level: 'info',
    code: 'merged',
    message: `L${cycle} was merged into ${merged.folder} (${merged.gguf}, sha256 ${merged.ggufSha256}).`,
  });
  return merged;
}
