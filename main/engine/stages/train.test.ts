import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MassError } from '../../common/base/errors.ts';
import { silentLogger } from '../../common/base/logger.ts';
import { ExperimentConfig, type ExperimentConfigInput } from '../../common/domain/config.ts';
import type { StageName } from '../../common/domain/events.ts';
import { sha256 } from '../../node/hashing.ts';
import { createEngine, type Engine } from '../engine.ts';
import { openStore, type Store } from '../store/store.ts';
import { useLabFolder } from '../testing/lab-folder.ts';
import type { ScriptedTrainerOptions } from '../testing/scripted-trainer.ts';
import { scriptedConfig, scriptedWorld } from '../testing/scripted-world.ts';
import { checkpointBytes, recipeOf } from './train-order.ts';

const lab = useLabFolder();
const { withStore } = lab;
const context = { signal: new AbortController().signal, progress: () => undefined };
const toTrain: StageName[] = ['search', 'collect', 'rank', 'select', 'render', 'train'];

interface Wish {
  readonly stages?: StageName[];
  readonly trainer?: ScriptedTrainerOptions;
  readonly train?: ExperimentConfigInput['train'];
  readonly gate?: boolean;
  readonly tasks?: ExperimentConfigInput['tasks'];
}

const configOf = ({ train, gate = false, tasks }: Wish): ExperimentConfigInput => ({
  ...scriptedConfig(lab.library),
  search: { updates: 0, callTokens: 4000 },
  gates: { beforeTrain: gate },
  train: { steps: 6, windowsPerStep: 2, checkpointEvery: 2, validateEvery: 3, rank: 4, ...train },
  ...(tasks ? { tasks } : {}),
});

async function withEngine<T>(wish: Wish, use: (engine: Engine) => Promise<T>): Promise<T> {
  const world = scriptedWorld(wish.trainer ? { trainer: wish.trainer } : {});
  const engine = await createEngine({ dataFolder: lab.folder, version: 'test', logger: silentLogger, world });
  try {
    await engine.handlers['experiment.create']({ name: 'cycle', config: configOf(wish) }, context);
    return await use(engine);
  } finally {
    await engine.shutdown('now');
  }
}

const start = (engine: Engine, stages: StageName[] = toTrain) =>
  engine.handlers['run.start']({ name: 'cycle', stages }, context);

const run = (wish: Wish = {}) =>
  withEngine(wish, async (engine) => {
    const { runId } = await start(engine, wish.stages);
    return engine.handlers['run.wait']({ runId }, context);
  });

function trained(store: Store) {
  const experimentId = store.experiments.byName('cycle')?.experimentId ?? '';
  const row = store.trainings.ofCycle({ experimentId, cycle: 1 });
  if (!row) throw new Error('Nothing was trained.');
  const { trainingId } = row;
  return {
    row,
    losses: store.trainings.steps(trainingId).map(({ step, loss }) => [step, loss]),
    validated: store.trainings.validations(trainingId).map(({ step }) => step),
    checkpoints: store.trainings.checkpoints(trainingId),
    events: store
      .eventsSince(0, 100_000)
      .map(({ event }) => event)
      .filter((event) => event.type.startsWith('training.')),
  };
}

const curve = [1, 2, 3, 4, 5, 6].map((step) => [step, 1 + 1 / (1 + step)]);

describe('the train stage', () => {
  it('trains on the windows and records losses, validations and checkpoints that are on disk', async () => {
    expect(await run()).toMatchObject({ state: 'done' });
    withStore((store) => {
      const { row, losses, validated, checkpoints } = trained(store);
      expect(row).toMatchObject({ state: 'finished', step: 6, steps: 6, fromStep: 0 });
      expect(row.trainingId).toMatch(/^tr_[0-9a-f]{12}$/);
      expect(losses).toEqual(curve);
      expect(validated).toEqual([0, 3, 6]);
      expect(checkpoints.map(({ step }) => step)).toEqual([2, 4, 6]);
      for (const { folder: place, adapterSha256 } of checkpoints)
        expect(sha256(readFileSync(join(lab.folder, place, 'adapter_model.safetensors')))).toBe(adapterSha256);
      const order = store.artifacts.json(row.orderHash) as {
        order: { recipe: unknown; windows: string };
        plan: unknown;
      };
      expect(order).toMatchObject({
        order: { recipe: { rank: 4, warmupSteps: 5, steps: 6, orchestratorShare: 1 / 3 } },
        plan: { fits: true },
        capabilities: { device: 'cpu: scripted' },
      });
      const stages = store.experiments.stages(row.experimentId);
      expect(stages.find(({ stage }) => stage === 'train')?.message).toBe(
        '6 of 6 steps; validation loss 2.0000 -> 1.1429. All 6 steps are done.',
      );
    });
  });

  it('is complete at once when it is finished, and trains again when its checkpoints are gone', async () => {
    await run();
    const before = withStore((store) => trained(store).events.length);
    expect(await run({ stages: ['train'], trainer: { beforeStep: fail('It trains again.') } })).toMatchObject({
      state: 'done',
    });
    const row = withStore((store) => trained(store).row);
    rmSync(join(lab.folder, row.folder), { recursive: true });
    expect(await run({ stages: ['train'] })).toMatchObject({ state: 'done' });
    withStore((store) => {
      expect(trained(store).row.trainingId).toBe(row.trainingId);
      expect(trained(store).events.length).toBe(2 * before);
      expect(existsSync(join(lab.folder, row.folder, 'step-000006'))).toBe(true);
      const notices = store.eventsSince(0, 100_000).flatMap(({ event }) => (event.type === 'notice' ? [event] : []));
      expect(notices.filter(({ code }) => code === 'checkpoint-lost').map(({ message }) => message)).toEqual([
        expect.stringMatching(/^Training L1 goes on from step 0 although step 6 was saved/),
      ]);
    });
  });

  it('starts a trainer that died again, at its newest checkpoint, with the same curve', async () => {
    const deaths = [3, 4, 4, 6];
    const dying = (step: number): void => {
      if (step !== deaths[0]) return;
      deaths.shift();
      throw new MassError('infrastructure', 'The trainer ended (signal SIGKILL).');
    };
    expect(await run({ trainer: { beforeStep: dying } })).toMatchObject({ state: 'done' });
    withStore((store) => {
      const { row, losses, validated, events } = trained(store);
      expect(row).toMatchObject({ state: 'finished', fromStep: 4 });
      expect(losses).toEqual(curve);
      expect(validated).toEqual([0, 3, 6]);
      const from = events.flatMap((event) => (event.type === 'training.started' ? [event.fromStep] : []));
      expect(from).toEqual([0, 2, 2, 2, 4]);
    });
  });

  it('is left to a person after three starts without a checkpoint, and goes on when run again', async () => {
    const dying = { beforeStep: fail('The trainer ended (signal SIGKILL).', 4) };
    expect(await run({ trainer: dying })).toMatchObject({ state: 'failed', error: { code: 'infrastructure' } });
    withStore((store) => {
      const { row, checkpoints, events } = trained(store);
      expect(row).toMatchObject({ state: 'failed', step: 3, message: 'The trainer ended (signal SIGKILL).' });
      expect(checkpoints.map(({ step }) => step)).toEqual([2]);
      expect(events.filter((event) => event.type === 'training.started')).toHaveLength(4);
    });
    expect(await run({ stages: ['train'] })).toMatchObject({ state: 'done' });
    withStore((store) => expect(trained(store).losses).toEqual(curve));
  });

  it('closes a training whose engine was killed, at its last step', async () => {
    await run();
    withStore((store) => {
      const { row, events } = trained(store);
      const started = events.find((event) => event.type === 'training.started');
      if (started?.type === 'training.started') store.append({ ...started, fromStep: 4 });
      expect(store.trainings.running().map(({ trainingId }) => trainingId)).toEqual([row.trainingId]);
    });
    await withEngine({}, async () => undefined);
    withStore((store) => {
      expect(store.trainings.running()).toEqual([]);
      expect(trained(store).row).toMatchObject({ state: 'stopped', step: 4 });
    });
  });

  it('ends after the step in progress when a stop was asked, and goes on there', async () => {
    await withEngine({ trainer: { beforeStep: stopAt(3, 'after') } }, async (engine) => {
      running = engine;
      const { runId } = await start(engine);
      expect(await engine.handlers['run.wait']({ runId }, context)).toMatchObject({ state: 'stopped' });
    });
    withStore((store) => {
      expect(trained(store).row).toMatchObject({ state: 'stopped', step: 3 });
      expect(trained(store).checkpoints.map(({ step }) => step)).toEqual([2, 3]);
    });
    expect(await run({ stages: ['train'] })).toMatchObject({ state: 'done' });
    withStore((store) => {
      expect(trained(store).row).toMatchObject({ state: 'finished', fromStep: 3 });
      expect(trained(store).losses).toEqual(curve);
    });
  });

  it('is shown by status while it runs: step, losses, who holds the device', async () => {
    let seen: Awaited<ReturnType<Engine['handlers']['experiment.status']>> | undefined;
    const look = async (step: number): Promise<void> => {
      if (step === 5) seen = await running?.handlers['experiment.status']({ name: 'cycle' }, context);
    };
    await withEngine({ trainer: { beforeStep: look } }, async (engine) => {
      running = engine;
      const { runId } = await start(engine);
      expect(await engine.handlers['run.wait']({ runId }, context)).toMatchObject({ state: 'done' });
      const { training, lease } = await engine.handlers['experiment.status']({ name: 'cycle' }, context);
      expect([training?.state, training?.step, training?.etaSeconds, lease]).toEqual(['finished', 6, null, null]);
    });
    expect(seen).toMatchObject({
      lease: 'train L1 for "cycle"',
      message: expect.stringMatching(/^train: step 4 of 6, loss 1\.2000, about \d+ s left$/) as string,
      training: { state: 'running', step: 4, steps: 6, loss: 1.2, checkpoints: [2, 4], etaSeconds: 0.02 },
    });
    expect(seen?.training?.validations.map(({ step }) => step)).toEqual([0, 3]);
    expect(seen?.stages.find(({ stage }) => stage === 'train')).toMatchObject({
      state: 'running',
      done: 4,
      planned: 6,
    });
  });

  it('ends at once when that was asked', async () => {
    await withEngine({ trainer: { beforeStep: stopAt(4, 'now') } }, async (engine) => {
      running = engine;
      const { runId } = await start(engine);
      expect(await engine.handlers['run.wait']({ runId }, context)).toMatchObject({ state: 'stopped' });
      expect((await engine.handlers['engine.info']({}, context)).lease).toBeNull();
    });
    withStore((store) => expect(trained(store).row).toMatchObject({ state: 'stopped', step: 3 }));
  });

  it('folds from its events', async () => {
    await run({ trainer: { beforeStep: fail('lost', 4) } });
    await run({ stages: ['train'] });
    withStore((store) => {
      const other = mkdtempSync(join(tmpdir(), 'mass-train-fold-'));
      const copy = openStore(other);
      copy.replay(store.eventsSince(0, 100_000));
      expect(copy.dump()).toEqual(store.dump());
      copy.close();
      rmSync(other, { recursive: true });
    });
  });
});

describe('what stops the train stage', () => {
  it('a gate that names windows, tokens, steps and hours, before the device is taken for long', async () => {
    const end = await run({ gate: true, trainer: { beforeStep: fail('It trains unasked.') } });
    expect(end).toMatchObject({ state: 'gated' });
    expect(end.message).toMatch(
      /^Training L1 on L0: 4 windows of [\d,]+ tokens \([\d,]+ trained\), 6 steps of 2 windows, about 30 min \(scripted\), 0\.0 GB of 1\.0 GB free memory, on cpu: scripted\. Go on with: mass approve cycle before-train$/,
    );
    await withEngine({ gate: true }, (engine) =>
      engine.handlers['gates.decide']({ name: 'cycle', gate: 'before-train', decision: 'approved', note: '' }, context),
    );
    expect(await run({ gate: true, stages: ['train'] })).toMatchObject({ state: 'done' });
  });

  it('memory that does not suffice, with numbers', async () => {
    const plan = { fits: false, neededBytes: 60e9, freeBytes: 24e9 };
    const end = await run({ trainer: { plan, beforeStep: fail('It trains without room.') } });
    expect(end).toMatchObject({ state: 'failed', error: { code: 'prerequisite', details: { plan } } });
    expect(end.message).toMatch(/needs 60\.0 GB of memory for windows of [\d,]+ tokens and 24\.0 GB are free/);
  });

  it('a disk that cannot hold the checkpoints', async () => {
    const end = await run({ trainer: { plan: { trainable: 1e15 }, beforeStep: fail('It trains without room.') } });
    expect(end).toMatchObject({ state: 'failed', error: { code: 'prerequisite', details: { disk: true } } });
  });

  it.each([
    ['a loss that is not finite', { lossOf: (step: number) => (step === 5 ? Number.NaN : 1) }, [2, 4], 4],
    ['validation that rises', { validationOf: (step: number) => step }, [2, 4], 4],
    ['no checkpoint yet', { lossOf: () => Number.POSITIVE_INFINITY }, [], 0],
  ])('divergence: %s', async (_what, trainer, saved, step) => {
    const train = { validateEvery: 1, patience: 4 };
    const end = await run({ trainer, train });
    expect(end).toMatchObject({ state: 'gated', error: { code: 'gate', details: { saved } } });
    expect(end.message).toContain(
      saved.length > 0 ? 'steps 2, 4 with: mass export NAME --checkpoint' : 'no checkpoint',
    );
    const again = await run({ stages: ['train'], train, trainer: { beforeStep: fail('It trains again.') } });
    expect(again).toMatchObject({ state: 'gated' });
    withStore((store) => {
      const { row, checkpoints } = trained(store);
      expect(row).toMatchObject({ state: 'diverged', step });
      for (const checkpoint of checkpoints) expect(existsSync(join(lab.folder, checkpoint.folder))).toBe(true);
      if (checkpoints.length === 0) return;
      const { trainingId, experimentId } = row;
      store.append({ type: 'checkpoint.chosen', trainingId, experimentId, step: 2, loss: 2, by: 'person', note: '' });
    });
    if (saved.length > 0) expect(await run({ stages: ['train'], train })).toMatchObject({ state: 'done' });
  });

  it('windows that are missing, or of another selection', async () => {
    const stages = toTrain.filter((stage) => stage !== 'render');
    expect(await run({ stages })).toMatchObject({
      state: 'failed',
      message: 'Training needs the windows of cycle 1; run: mass render cycle',
    });
    await run({ stages: ['render'] });
    withStore((store) => {
      const experimentId = store.experiments.byName('cycle')?.experimentId ?? '';
      const row = store.windowSets.ofCycle({ experimentId, cycle: 1 });
      if (!row) throw new Error('Nothing was rendered.');
      const { renderedAt: _, ...set } = row;
      store.append({ type: 'windows.rendered', ...set, windowSetId: 'ws_other' });
    });
    expect(await run({ stages: ['train'] })).toMatchObject({
      state: 'failed',
      message: 'The windows of cycle 1 are not those of its selection; run: mass render cycle',
    });
  });

  it('a base folder that depends on where the engine was started', async () => {
    expect(await run({ train: { base: 'models/base' } })).toMatchObject({ state: 'failed', error: { code: 'usage' } });
  });
});

describe('recipes', () => {
  const config = (train: ExperimentConfigInput['train'] = {}) =>
    ExperimentConfig.parse({ model: { id: 'm' }, tasks: { train: ['t'] }, train });

  it('are method.md’s for its 2,435 windows', () => {
    expect(recipeOf(config(), 2435)).toEqual({
      ...{ rank: 64, alpha: 128, dropout: 0.05, steps: 1624, windowsPerStep: 3, learningRate: 3e-5, warmupSteps: 5 },
      ...{ finalShare: 0.1, betas: [0.9, 0.95], weightDecay: 0, gradNorm: 1, orchestratorShare: 1 / 3 },
      ...{ checkpointEvery: 50, validateEvery: 150, patience: 3, lossChunk: 512, seed: 42 },
    });
  });

  it('shrink with the windows, and warm up no longer than they last', () => {
    expect(recipeOf(config(), 4)).toMatchObject({ steps: 3, warmupSteps: 3 });
    expect(() => recipeOf(config(), 0)).toThrow(MassError);
  });

  it('need disk for the checkpoints that are not written yet', () => {
    const recipe = recipeOf(config(), 2435);
    // 33 adapters of 4 bytes, and three optimizers of 8 bytes, for a million numbers.
    expect(checkpointBytes(recipe, 1e6, 0)).toBeCloseTo(1.05 * (33 * 4e6 + 3 * 8e6) + 50e6, -1);
    expect(checkpointBytes(recipe, 1e6, 40)).toBeCloseTo(1.05 * 3 * 8e6 + 50e6, -1);
  });
});

let running: Engine | undefined;
/** Asks for a stop before a step. */
const stopAt = (at: number, mode: 'after' | 'now') => (step: number) => {
  if (step === at) void running?.handlers['engine.stop']({ mode, shutdown: false }, context);
};
/** The trainer that dies before a step, the first by default. */
const fail =
  (message: string, at = 1) =>
  (step: number): void => {
    if (step >= at) throw new MassError('infrastructure', message);
  };
