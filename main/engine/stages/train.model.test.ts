import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { seededRandom } from '../../common/base/seeded-random.ts';
import { ExperimentConfig, type ExperimentConfigInput } from '../../common/domain/config.ts';
import { smolLm2Model } from '../../inference/testing/smollm2.ts';
import { sha256File } from '../../node/file-hash.ts';
import { projectRoot } from '../../node/project-root.ts';
import { createCycleServices } from '../cycle-services.ts';
import { createExperiment, requireExperiment } from '../experiments.ts';
import { createDeviceLease } from '../lease/lease.ts';
import type { StageContext } from '../runner/stage.ts';
import { openStore, type Store } from '../store/store.ts';
import { scriptedWorld } from '../testing/scripted-world.ts';
import { createPythonTrainer } from '../trainer/python-trainer.ts';
import { ensureTrainerEnvironment } from '../trainer/trainer-environment.ts';
import { windowSetIdOf } from './render.ts';
import { trainStage } from './train.ts';
import { WindowSetWriter } from './window-set-writer.ts';

/** The real trainer over the demo model's GGUF, with the windows of nobody's conversation. */
const config: ExperimentConfigInput = {
  model: { id: 'smollm2', contextSize: 262_144, sequences: 1, gpu: 'off' },
  tasks: { library: 'builtin', train: ['drug-safety'], test: [] },
  train: {
    steps: 3,
    windowsPerStep: 1,
    rank: 4,
    alpha: 8,
    learningRate: 1e-3,
    checkpointEvery: 1,
    validateEvery: 3,
    device: 'cpu',
    threads: 1,
  },
};

let model: { path: string; sha256: string };
let python: string;
const folders: string[] = [];
const stores: Store[] = [];
beforeAll(async () => {
  const path = await smolLm2Model();
  model = { path, sha256: await sha256File(path) };
  ({ python } = await ensureTrainerEnvironment({ root: join(projectRoot, '.mass', 'python') }));
}, 900_000);
afterEach(() => {
  for (const store of stores.splice(0)) store.close();
});
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function prepare() {
  const folder = mkdtempSync(join(tmpdir(), 'mass-train-model-'));
  folders.push(folder);
  const store = openStore(folder);
  stores.push(store);
  const registered = { bytes: 0, architecture: 'llama', source: 'test' };
  store.append({ type: 'model.registered', modelId: 'smollm2', ...model, ...registered });
  await createExperiment(store, { name: 'real', config, massVersion: 'test' });
  const experiment = requireExperiment(store, 'real');
  const lease = createDeviceLease(() => Promise.reject(new Error('Training serves nothing.')));
  const services = createCycleServices({
    store,
    experiment,
    generation: store.experiments.generations(experiment.experimentId)[0]!,
    lease,
    openVocabulary: () => Promise.reject(new Error('Training needs no vocabulary.')),
    openTrainer: () => Promise.resolve(createPythonTrainer({ python, logger: silentLogger })),
    scoreServed: () => Promise.reject(new Error('Training scores nothing.')),
    llamaSources: () => Promise.reject(new Error('Training converts nothing.')),
    sandbox: await scriptedWorld().openSandbox(experiment),
    environment: { mounts: {}, env: {}, description: 'bash' },
    logger: silentLogger,
  });
  const said: string[] = [];
  const context: StageContext = {
    experimentId: experiment.experimentId,
    cycle: 1,
    config: ExperimentConfig.parse(config),
    tasks: null,
    signal: new AbortController().signal,
    draining: () => false,
    slot: (work) => work(),
    gate: async () => undefined,
    doing: (what) => said.push(what),
  };
  await writeWindows(services, context);
  const result = () => {
    const training = store.trainings.ofCycle(context);
    const id = training?.trainingId ?? '';
    const exact = store.trainings
      .steps(id)
      .map(({ step, loss, gradNorm, windowsJson }) => [step, loss, gradNorm, windowsJson]);
    return {
      training,
      steps: exact,
      validations: store.trainings.validations(id),
      checkpoints: store.trainings.checkpoints(id),
    };
  };
  return { folder, store, run: () => trainStage(services).run(context), result, lease, said };
}

/** Three windows to train on and one to validate with, 40 tokens each, of which the last 12 carry loss. */
async function writeWindows(services: Parameters<typeof windowSetIdOf>[0], context: StageContext): Promise<void> {
  const windowSetId = windowSetIdOf(services, context);
  const folder = join('windows', windowSetId);
  const writer = await WindowSetWriter.open(join(services.dataFolder, folder));
  const random = seededRandom(5);
  for (const split of ['train', 'train', 'train', 'validate'] as const) {
    const ids = Uint32Array.from({ length: 40 }, () => 100 + Math.floor(random() * 2000));
    const blocks = [
      { start: 0, end: 28, part: 'header' as const, completionId: null },
      { start: 28, end: 40, part: 'loss' as const, completionId: 'c' },
    ];
    const meta = { split, taskId: 'drug-safety', role: 'orchestrator' as const, episodeId: 'e', threadId: 't' };
    await writer.add(meta, { ids, blocks, labelledTokens: 12, leftOut: 0 });
  }
  const { manifest, text } = await writer.finish((summary) => ({
    ...{ format: 1, windowTokens: 64, overlapTokens: 0, modelSha256: model.sha256, adapterSha256: null },
    ...{ vocabularySha256: '0'.repeat(64), episodes: [] },
    ...summary,
  }));
  const manifestHash = services.store.artifacts.put(text);
  const { experimentId } = context;
  services.store.append({
    ...{ type: 'windows.rendered', windowSetId, experimentId, cycle: 1, folder, manifestHash },
    modelSha256: model.sha256,
    ...manifest.total,
  });
}

const trainerPids = (): number[] => {
  const rows = execFileSync('ps', ['-eo', 'pid,ppid,args']).toString().split('\n');
  return rows.flatMap((row) => {
    const [, pid, parent, args = ''] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(row) ?? [];
    return Number(parent) === process.pid && args.includes('-m trainer serve') ? [Number(pid)] : [];
  });
};

it('trains, and after kill -9 at its first checkpoint goes on with the same numbers', async () => {
  const whole = await prepare();
  expect(await whole.run()).toMatchObject({ complete: true });
  const expected = whole.result();
  expect(expected.training).toMatchObject({ state: 'finished', step: 3, fromStep: 0 });
  expect(expected.steps.map(([step]) => step)).toEqual([1, 2, 3]);
  expect(expected.validations.map(({ step, labelledTokens }) => [step, labelledTokens])).toEqual([
    [0, 12],
    [3, 12],
  ]);
  expect(expected.checkpoints.map(({ step }) => step)).toEqual([1, 2, 3]);
  expect(whole.lease.holder()).toBeNull();
  expect(whole.said.at(-1)).toMatch(/^train: step 3 of 3, loss \d+\.\d{4}, about 0 s left$/);

  const killed = await prepare();
  const stopWatching = killed.store.onAppend((events) => {
    if (!events.some(({ event }) => event.type === 'training.checkpointed')) return;
    stopWatching();
    for (const pid of trainerPids()) process.kill(pid, 'SIGKILL');
  });
  expect(await killed.run()).toMatchObject({ complete: true });
  expect(trainerPids()).toEqual([]);
  const ends = killed.store
    .eventsSince(0, 1000)
    .flatMap(({ event }) => (event.type === 'training.ended' ? [`${event.state} ${event.message}`] : []));
  expect(ends).toEqual([
    expect.stringMatching(/^failed The trainer ended \(signal SIGKILL\)/),
    expect.stringMatching(/^finished/),
  ]);
  const { training, steps, validations, checkpoints } = killed.result();
  expect(training).toMatchObject({ state: 'finished', step: 3 });
  expect(training?.fromStep).toBeGreaterThan(0);
  expect(steps).toEqual(expected.steps);
  expect(validations.map(({ step, loss }) => [step, loss])).toEqual(
    expected.validations.map(({ step, loss }) => [step, loss]),
  );
  const weights = ({ folder }: { folder: string }, place = '') =>
    readFileSync(join(folder, place, 'adapter_model.safetensors'));
  expect(weights(killed, checkpoints.at(-1)?.folder).equals(weights(whole, expected.checkpoints.at(-1)?.folder))).toBe(
    true,
  );
}, 900_000);
