import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { cancelled, MassError } from '../../common/base/errors.ts';
import { ParityReport } from '../../common/domain/parity-report.ts';
import type { TrainerMachine, TrainerModel } from '../../common/protocol/trainer.ts';
import { sha256File } from '../../node/file-hash.ts';
import { requireFreeBytes } from '../../node/free-disk.ts';
import { newId } from '../../node/ids.ts';
import { baseLicence } from '../export/base-licence.ts';
import { cardPath, placeCard } from '../export/generation-folder.ts';
import { modelCard } from '../export/model-card.ts';
import { measureServedParity, parityFailed, parityNumbers } from '../export/parity-gate.ts';
import { holdsAdapter, type StoredAdapter, storeAdapter } from '../export/store-adapter.ts';
import { isOf, requireTrained, settleChoice } from '../export/trained-checkpoint.ts';
import { withDevice } from '../lease/with-device.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { ExperimentRow, GenerationRow } from '../store/repositories/experiments.ts';
import type { CheckpointRow, TrainingRow } from '../store/repositories/trainings.ts';
import { lineageCheckpoints, trainerModelOf } from './adapter-lineage.ts';
import type { CycleServices } from './services.ts';

/** What a cycle's export works on. */
interface Subject {
  readonly experiment: ExperimentRow;
  readonly training: TrainingRow;
  readonly checkpoint: CheckpointRow;
  /** the base with the parent's adapters */
  readonly model: TrainerModel;
}

/**
 * Makes L(cycle) of the cycle's training: one checkpoint, all adapters of its lineage as one GGUF, proof that the served
 * adapter does what the trained one does, a person's approval, registration with a model card. Whatever is done is found
 * by its row and file and skipped. Nothing is overwritten.
 *
 * Errors: `usage` while the cycle is not trained, `gate` when a person has to choose or approve, `conflict` when parity
 * fails, `prerequisite` (disk, git, trainer environment).
 */
export function exportStage(services: CycleServices): Stage {
  return {
    name: 'export',
    run: async (context) => {
      await clearScratch(services, context);
      const known = madeBefore(services, context);
      if (known) return { complete: true, message: await restore(services, context, known) };
      const subject = await subjectOf(services, context);
      const adapter = await provenAdapter(services, context, subject);
      if (adapter === null) return { complete: false, message: '' };
      const report = reportOf(services, subject);
      await context.gate('before-register', question(services, subject, { adapter, report }));
      const made = await register(services, subject, { adapter, report });
      return { complete: true, message: summary(subject, made) };
    },
  };
}

/** Where files lie while they are made. One run works on a training at a time, so what is there is of a dead one. */
const scratchOf = ({ dataFolder }: CycleServices, { trainingId }: TrainingRow): string =>
  join(dataFolder, 'exporting', trainingId);

async function clearScratch(services: CycleServices, context: StageContext): Promise<void> {
  const training = services.store.trainings.ofCycle(context);
  if (training) await rm(scratchOf(services, training), { recursive: true, force: true });
}

const madeBefore = ({ store }: CycleServices, { experimentId, cycle }: StageContext): GenerationRow | undefined =>
  store.experiments.generations(experimentId).find((row) => row.number === cycle);

async function subjectOf(services: CycleServices, context: StageContext): Promise<Subject> {
  const { store, generation } = services;
  const { experimentId, config } = context;
  const experiment = requireRow(store.experiments.byId(experimentId));
  const training = requireTrained(store, context);
  if (training.parentGenerationId !== generation.generationId)
    throw new MassError(
      'conflict',
      `The training of cycle ${context.cycle} began from another generation than L${generation.number}; create a new experiment.`,
    );
  const checkpoint = settleChoice(store, training);
  for (const row of [...lineageCheckpoints(store, generation), checkpoint])
    await requireUnchanged(services, context, row);
  return { experiment, training, checkpoint, model: trainerModelOf(store, { config, generation }) };
}

/** A checkpoint that was touched since it was written would become another generation than the one its losses are of. */
async function requireUnchanged(services: CycleServices, context: StageContext, row: CheckpointRow): Promise<void> {
  const path = join(services.dataFolder, row.folder, 'adapter_model.safetensors');
  const found = await sha256File(path, { signal: context.signal }).catch((cause: unknown) => {
    if (context.signal.aborted) throw cancelled('Export was stopped.');
    throw new MassError('not_found', `The checkpoint of step ${row.step} cannot be read (${path}); restore it.`, {
      cause,
    });
  });
  if (found !== row.adapterSha256)
    throw new MassError('conflict', `The checkpoint of step ${row.step} has changed since it was written (${path}).`);
}

/** The adapter of the chosen checkpoint, converted and proven; null when a stop was asked before that. */
async function provenAdapter(
  services: CycleServices,
  context: StageContext,
  subject: Subject,
): Promise<StoredAdapter | null> {
  const { store, dataFolder } = services;
  const key = { trainingId: subject.training.trainingId, step: subject.checkpoint.step };
  const [knownExport, knownParity] = [store.trainings.exported(key), store.trainings.parity(key)];
  const exported = isOf(subject.training, knownExport?.exportedAt) ? knownExport : undefined;
  const parity = isOf(subject.training, knownParity?.measuredAt) ? knownParity : undefined;
  const there = exported !== undefined && (await holdsAdapter(dataFolder, exported.adapterSha256, context.signal));
  if (there && parity?.passed === 1 && parity.adapterSha256 === exported.adapterSha256) return exported;
  if (context.draining()) return null;
  await checkDisk(services, subject);
  const trainer = await services.trainer();
  const label = `export L${context.cycle} for "${subject.experiment.name}"`;
  context.doing('export: waiting for the device');
  return withDevice(services.lease, { label, signal: context.signal }, async () => {
    const scratch = scratchOf(services, subject.training);
    await mkdir(scratch, { recursive: true });
    try {
      // What failed parity is converted anew: the program may have been mended since.
      const adapter =
        there && parity === undefined ? exported : await convert(services, context, { ...subject, trainer, scratch });
      if (context.draining()) return null;
      const proven = parity?.passed === 1 && parity.adapterSha256 === adapter.adapterSha256;
      if (!proven) await prove(services, context, { ...subject, trainer, scratch, adapter });
      return adapter;
    } finally {
      await rm(scratch, { recursive: true, force: true });
    }
  });
}

/** Adapters in f32 while they are made and as f16 afterwards, and four score files of a large vocabulary. */
async function checkDisk({ store, generation, dataFolder }: CycleServices, { checkpoint }: Subject): Promise<void> {
  const checkpoints = [...lineageCheckpoints(store, generation), checkpoint];
  const adapters = checkpoints.reduce((sum, row) => sum + row.bytes, 0);
  await requireFreeBytes(dataFolder, 2 * adapters + 600e6, 'Exporting the adapter');
}

type Worker = Subject & { readonly trainer: Awaited<ReturnType<CycleServices['trainer']>>; readonly scratch: string };

async function convert(services: CycleServices, context: StageContext, worker: Worker): Promise<StoredAdapter> {
  const { store, dataFolder } = services;
  const { trainer, scratch, model, training, checkpoint } = worker;
  const { signal } = context;
  context.doing(`export: converting ${model.merged.length + 1} of the lineage's adapters`);
  const llamaCpp = await services.llamaSources(signal);
  const adapter = join(dataFolder, checkpoint.folder);
  const stored = await storeAdapter({ trainer, llamaCpp, dataFolder, scratch, model, adapter, signal });
  const { trainingId, experimentId } = training;
  store.append({ type: 'adapter.exported', trainingId, experimentId, step: checkpoint.step, ...stored });
  return stored;
}

async function prove(
  services: CycleServices,
  context: StageContext,
  worker: Worker & { readonly adapter: StoredAdapter },
): Promise<void> {
  const { store, dataFolder, generation, scoreServed } = services;
  const { training, checkpoint, adapter, trainer, model, scratch } = worker;
  const { trainingId, experimentId } = training;
  const { adapterSha256 } = adapter;
  const set = store.windowSets.ofCycle(context);
  if (set?.windowSetId !== training.windowSetId)
    throw new MassError('conflict', 'The windows were rendered anew since the training; train again with: mass train');
  const report = await measureServedParity({
    trainer,
    scoreServed,
    windows: join(dataFolder, set.folder),
    contextSize: context.config.model.contextSize,
    model,
    adapter: join(dataFolder, checkpoint.folder),
    machine: machineOf(context),
    parent: generation,
    made: { ...generation, ...nextOf(services, adapterSha256) },
    scratch,
    doing: context.doing,
    signal: context.signal,
  });
  const { passed } = report.parity;
  store.appendWith(() => [
    {
      type: 'parity.measured',
      trainingId,
      experimentId,
      step: checkpoint.step,
      adapterSha256,
      passed,
      reportHash: store.artifacts.putJson(report),
    },
  ]);
  if (!passed) throw parityFailed(context.cycle, report.parity);
}

const machineOf = ({ config: { train } }: StageContext): TrainerMachine => ({
  device: train.device,
  threads: train.threads,
  allowSlowKernels: train.allowSlowKernels,
});

const nextOf = ({ generation }: CycleServices, adapterSha256: string) => ({
  number: generation.number + 1,
  parentGenerationId: generation.generationId,
  adapterSha256,
});

interface Proven {
  readonly adapter: StoredAdapter;
  readonly report: ParityReport;
}

function reportOf({ store }: CycleServices, { training, checkpoint }: Subject): ParityReport {
  const row = store.trainings.parity({ trainingId: training.trainingId, step: checkpoint.step });
  return ParityReport.parse(store.artifacts.json(requireRow(row).reportHash));
}

function question({ store }: CycleServices, { experiment, training, checkpoint }: Subject, proven: Proven) {
  const { adapter, report } = proven;
  const validations = store.trainings.validations(training.trainingId);
  const lossAt = (step: number): number | null => validations.find((row) => row.step === step)?.loss ?? null;
  const [before, after] = [lossAt(0), lossAt(checkpoint.step)];
  const words = (loss: number | null): string => (loss === null ? 'not measured' : loss.toFixed(4));
  return {
    message:
      `L${training.cycle} of "${experiment.name}" waits to be registered: validation loss ${words(before)} before training, ` +
      `${words(after)} at step ${checkpoint.step}; parity ${parityNumbers(report.parity)}.`,
    details: {
      step: checkpoint.step,
      validationBefore: before,
      validationAfter: after,
      adapterSha256: adapter.adapterSha256,
      parity: report.parity,
    },
    about: [adapter.adapterSha256],
  };
}

async function register(services: CycleServices, subject: Subject, proven: Proven): Promise<GenerationRow> {
  const { store, generation } = services;
  const { experiment, training, checkpoint } = subject;
  const model = requireRow(store.models.byId(generation.modelId));
  const licence = await baseLicence(model);
  const next = { ...generation, ...nextOf(services, proven.adapter.adapterSha256), generationId: newId('gn') };
  const { cardHash: _, ...made } = next;
  const card = modelCard({
    store,
    experiment,
    model,
    licence,
    parent: generation,
    made: next,
    training,
    checkpoint,
    ...proven,
  });
  store.appendWith(() => [{ type: 'generation.registered', ...made, cardHash: store.artifacts.put(card) }]);
  const row = services.generationOf(made.generationId);
  await placeCard(store, experiment, row);
  return row;
}

/** A registered generation never changes; its files are put back when they are gone. */
async function restore(services: CycleServices, context: StageContext, made: GenerationRow): Promise<string> {
  const { store, dataFolder } = services;
  const experiment = requireRow(store.experiments.byId(context.experimentId));
  await placeCard(store, experiment, made);
  const { adapterSha256 } = made;
  if (adapterSha256 !== null && !(await holdsAdapter(dataFolder, adapterSha256, context.signal))) {
    const subject = await subjectOf(services, context);
    const adapter = await provenAdapter(services, context, subject);
    if (adapter?.adapterSha256 !== adapterSha256)
      throw new MassError(
        'conflict',
        `The adapter file of L${made.number} is gone, and converting its checkpoint again gives another; restore adapters/${adapterSha256}.gguf.`,
      );
  }
  return `L${made.number} is registered, adapter ${adapterSha256?.slice(0, 8) ?? 'none'}.`;
}

const summary = ({ experiment, checkpoint }: Subject, made: GenerationRow): string =>
  `L${made.number} registered: step ${checkpoint.step}, adapter ${made.adapterSha256?.slice(0, 8)}; its card is ${cardPath(experiment, made)}.`;

function requireRow<T>(row: T | undefined): T {
  if (row === undefined) throw new MassError('internal', 'A row that the export needs is missing.');
  return row;
}
