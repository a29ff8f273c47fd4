import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import type { ExperimentConfigInput } from '../../common/domain/config.ts';
import type { StageName } from '../../common/domain/events.ts';
import type { MergedModel } from '../../common/protocol/export.ts';
import { tinyHybridModel } from '../../inference/testing/tiny-hybrid.ts';
import { sha256File } from '../../node/file-hash.ts';
import { projectRoot } from '../../node/project-root.ts';
import { createEngine, type Engine } from '../engine.ts';
import { requireExperiment } from '../experiments.ts';
import { parityPrompts } from '../export/parity-prompts.ts';
import { readGgufHeader } from '../models/gguf-header.ts';
import { serveTarget } from '../serve-target.ts';
import { openStore, type Store } from '../store/store.ts';
import { scriptedConfig, scriptedWorld, writeTaskLibrary } from '../testing/scripted-world.ts';
import { editSafetensors, spoilers } from '../testing/spoiled-adapters.ts';
import { createPythonTrainer } from '../trainer/python-trainer.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';
import { ensureTrainerEnvironment } from '../trainer/trainer-environment.ts';
import { localWorld, type RunWorld } from '../world.ts';
import { lineageCheckpoints, trainerModelOf } from './adapter-lineage.ts';

/**
 * The way from a cycle's windows to the next generation with the real sidecar and the real llama.cpp, on a tiny model of
 * the hybrid architecture. Only what the model says is scripted: tokens are bytes, which are ids of the tiny model too.
 */
let folder: string;
let modelPath: string;
let trainer: TrainerEngine;
let world: RunWorld;
let config: ExperimentConfigInput;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mass-export-model-'));
  modelPath = await tinyHybridModel();
  const { python } = await ensureTrainerEnvironment({ root: join(projectRoot, '.mass', 'python') });
  trainer = createPythonTrainer({ python, logger: silentLogger });
  const { scoreServed, openLlamaSources } = localWorld(folder, silentLogger);
  world = { ...scriptedWorld(), scoreServed, openLlamaSources, openTrainer: () => Promise.resolve(trainer) };
  const library = writeTaskLibrary(join(folder, 'tasks'));
  config = {
    ...scriptedConfig(library),
    model: { id: 'tiny', contextSize: 4096, sequences: 1, gpu: 'off' },
    tasks: { library, train: ['one'], test: [] },
    search: { updates: 0, callTokens: 400, requireProvenWin: false },
    judging: { callTokens: 400 },
    executor: { turnTokens: 400, contextSafety: 16 },
    gates: { beforeTrain: false, beforeRegister: false, onFindings: false },
    integrity: { quarantine: false },
    train: {
      ...{ rank: 4, alpha: 8, dropout: 0, steps: 4, windowsPerStep: 1, learningRate: 1e-2, warmupSteps: 1 },
      ...{ checkpointEvery: 4, validateEvery: 4, device: 'cpu', threads: 2, allowSlowKernels: true },
    },
  };
  await withStore(async (store) => {
    store.append({
      type: 'model.registered',
      modelId: 'tiny',
      path: modelPath,
      bytes: 0,
      sha256: await sha256File(modelPath),
      architecture: 'qwen35',
      source: 'test',
    });
  });
}, 900_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

const context = { signal: new AbortController().signal, progress: () => undefined };
const beforeExport: StageName[] = ['search', 'collect', 'rank', 'select', 'render', 'train'];

async function withStore<T>(use: (store: Store) => Promise<T>): Promise<T> {
  const store = openStore(folder);
  try {
    return await use(store);
  } finally {
    store.close();
  }
}

async function withEngine<T>(use: (engine: Engine) => Promise<T>, its: RunWorld = world): Promise<T> {
  const engine = await createEngine({ dataFolder: folder, version: 'test', logger: silentLogger, world: its });
  try {
    return await use(engine);
  } finally {
    await engine.shutdown('now');
  }
}

const run = (stages: StageName[], cycles: number[], its = world) =>
  withEngine(async (engine) => {
    await engine.handlers['experiment.create']({ name: 'first', config }, context);
    const { runId } = await engine.handlers['run.start']({ name: 'first', stages, cycles }, context);
    return engine.handlers['run.wait']({ runId }, context);
  }, its);

const show = (cycle: number) =>
  withEngine((engine) => engine.handlers['export.show']({ name: 'first', cycle }, context));

/** A world whose trainer converts another adapter than the trained one. */
function spoiling(spoil: (typeof spoilers)[keyof typeof spoilers]): RunWorld {
  const converting: TrainerEngine = {
    ...trainer,
    convert: async (order, signal) => {
      const root = await mkdtemp(join(folder, 'spoiled-'));
      const adapters = order.adapters.map((path, i) => join(root, `${i}-${basename(path)}`));
      for (const [i, adapter] of adapters.entries()) {
        await cp(order.adapters[i] as string, adapter, { recursive: true });
        editSafetensors(join(adapter, 'adapter_model.safetensors'), spoil);
      }
      return trainer.convert({ ...order, adapters }, signal);
    },
  };
  return { ...world, openTrainer: () => Promise.resolve(converting) };
}

it('lets no wrong conversion become a generation', { timeout: 900_000 }, async () => {
  expect(await run(beforeExport, [1])).toMatchObject({ state: 'done' });
  for (const spoil of Object.values(spoilers)) {
    const end = await run(['export'], [1], spoiling(spoil));
    expect(end).toMatchObject({ state: 'failed', error: { code: 'conflict' } });
    expect(end.message).toMatch(/so L1 is not registered/);
    const report = await show(1);
    expect(report.generation).toBeNull();
    expect(report.parity?.parity.klAdapted).toBeGreaterThan(2 * (report.parity?.parity.klLimit ?? 1));
  }
});

it('makes L1 and, trained on it, L2, both served as they were trained', { timeout: 900_000 }, async () => {
  expect(await run(['export'], [1])).toMatchObject({ state: 'done' });
  expect(await run([...beforeExport, 'export'], [2])).toMatchObject({ state: 'done' });
  for (const cycle of [1, 2]) {
    const report = await show(cycle);
    const { adapter, parity, generation } = report;
    expect(generation?.adapterSha256).toBe(adapter?.sha256);
    expect(await sha256File(adapter?.path ?? '')).toBe(adapter?.sha256);
    expect(adapter?.rank).toBe(4 * cycle);
    expect(parity?.parity).toMatchObject({ passed: true });
    expect(parity?.parity.klAdapted).toBeLessThan(1e-5);
    expect(parity?.parity.klEffect).toBeGreaterThan(1e-3);
    expect(parity?.parity.cosine).toBeGreaterThan(0.999);
  }
  const card = await readFile(join(folder, 'generations/first-L2/README.md'), 'utf8');
  expect(card).toMatch(/Trained on cpu.* torch 2\./);
});

/** Rows of probabilities from a score file. */
async function probabilities(path: string): Promise<Float32Array> {
  const bytes = await readFile(path);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => Math.exp(bytes.readFloatLE(4 * i)));
}

it('serves both adapters as one that does what merging both does', { timeout: 300_000 }, async () => {
  await withStore(async (store) => {
    const experiment = requireExperiment(store, 'first');
    const l2 = store.experiments.generations(experiment.experimentId)[2];
    const set = store.windowSets.ofCycle({ experimentId: experiment.experimentId, cycle: 2 });
    if (!l2 || !set) throw new Error('L2 is missing.');
    const lastPositions = 8;
    const limits = { count: 2, lastPositions, longest: 512 };
    const prompts = (await parityPrompts(join(folder, set.folder), limits)).map(({ ids }) => [...ids]);
    const scratch = join(folder, 'compared');
    await mkdir(scratch);
    const merged = join(scratch, 'merged');
    const model = trainerModelOf(store, { config: experiment.config, generation: l2 });
    expect(model.merged).toHaveLength(2);
    const machine = { device: 'cpu', threads: 2, allowSlowKernels: true } as const;
    const { vocabulary } = await trainer.score(
      { model, adapter: null, prompts, lastPositions, output: merged, machine },
      context.signal,
    );
    const output = join(scratch, 'served');
    await world.scoreServed(serveTarget(experiment, l2), store, { prompts, lastPositions, output, ...context });
    const [a, b] = [await probabilities(merged), await probabilities(output)];
    for (let row = 0; row < a.length / vocabulary; row++) {
      let l1 = 0;
      for (let id = row * vocabulary; id < (row + 1) * vocabulary; id++) l1 += Math.abs((a[id] ?? 0) - (b[id] ?? 1));
      expect(l1).toBeLessThan(1e-3);
    }
    expect(lineageCheckpoints(store, l2)).toHaveLength(2);
  });
});

const merge = (out: string): Promise<MergedModel> =>
  withEngine((engine) => engine.handlers['export.merge']({ name: 'first', cycle: 2, type: 'q8_0', out }, context));

it('writes a merged model into a new folder, and into no other', { timeout: 300_000 }, async () => {
  const out = join(folder, 'merged-L2');
  const merged = await merge(out);
  expect(merged).toMatchObject({ folder: out, safetensors: 'safetensors', gguf: 'first-L2-Q8_0.gguf' });
  const gguf = join(out, merged.gguf);
  expect(await sha256File(gguf)).toBe(merged.ggufSha256);
  const [made, base] = [await readGgufHeader(gguf), await readGgufHeader(modelPath)];
  expect([made.architecture, made.parameterCount]).toEqual([base.architecture, base.parameterCount]);
  expect(made.metadata.get('tokenizer.ggml.tokens')).toEqual(base.metadata.get('tokenizer.ggml.tokens'));
  expect(existsSync(join(out, 'safetensors', 'model.safetensors'))).toBe(true);
  expect(await readFile(join(out, 'README.md'), 'utf8')).toContain('# first L2');
  await expect(merge(out)).rejects.toMatchObject({ code: 'conflict' });
});
