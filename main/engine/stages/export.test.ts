import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { cancelled } from '../../common/base/errors.ts';
import { silentLogger } from '../../common/base/logger.ts';
import type { ExperimentConfigInput } from '../../common/domain/config.ts';
import type { StageName } from '../../common/domain/events.ts';
import { ParityReport } from '../../common/domain/parity-report.ts';
import { sha256 } from '../../node/hashing.ts';
import { createEngine, type Engine } from '../engine.ts';
import { buildGguf, smallModel } from '../models/gguf-fixture.ts';
import { adapterFile } from '../serve-target.ts';
import type { ModelRow } from '../store/repositories/models.ts';
import { openStore } from '../store/store.ts';
import { useLabFolder } from '../testing/lab-folder.ts';
import { scriptedConfig, scriptedWorld } from '../testing/scripted-world.ts';
import type { RunWorld } from '../world.ts';

const lab = useLabFolder();
const { withStore } = lab;
const context = { signal: new AbortController().signal, progress: () => undefined };
const cycleStages: StageName[] = ['search', 'collect', 'rank', 'select', 'render', 'train', 'export'];

/** A cycle of one task, two tiny trainings' worth of steps, and no gates unless asked for. */
const config = (more: Partial<ExperimentConfigInput> = {}): ExperimentConfigInput => ({
  ...scriptedConfig(lab.library),
  tasks: { library: lab.library, train: ['one'], test: [] },
  search: { updates: 0, callTokens: 4000, requireProvenWin: false },
  gates: { beforeTrain: false, beforeRegister: false, onFindings: false },
  integrity: { quarantine: false },
  train: { rank: 4, steps: 6, checkpointEvery: 2, validateEvery: 2 },
  ...more,
});

async function withEngine<T>(use: (engine: Engine) => Promise<T>, world: RunWorld = scriptedWorld()): Promise<T> {
  const engine = await createEngine({ dataFolder: lab.folder, version: 'test', logger: silentLogger, world });
  try {
    return await use(engine);
  } finally {
    await engine.shutdown('now');
  }
}

interface RunGiven {
  readonly stages?: StageName[];
  readonly cycles?: number[];
  readonly world?: RunWorld;
  readonly config?: ExperimentConfigInput;
}

const run = ({ stages = cycleStages, cycles, world, config: given = config() }: RunGiven = {}) =>
  withEngine(async (engine) => {
    await engine.handlers['experiment.create']({ name: 'first', config: given }, context);
    const order = { name: 'first', stages, ...(cycles === undefined ? {} : { cycles }) };
    const { runId } = await engine.handlers['run.start'](order, context);
    return engine.handlers['run.wait']({ runId }, context);
  }, world);

const show = (cycle = 1) => withEngine((engine) => engine.handlers['export.show']({ name: 'first', cycle }, context));
const choose = (step: number, note = '', cycle = 1) =>
  withEngine((engine) => engine.handlers['export.choose']({ name: 'first', cycle, step, note }, context));
const decide = (decision: 'approved' | 'rejected') =>
  withEngine((engine) =>
    engine.handlers['gates.decide']({ name: 'first', gate: 'before-register', decision, note: '' }, context),
  );

const generations = () =>
  withStore((store) => store.experiments.generations(store.experiments.byName('first')?.experimentId ?? ''));
const eventsOf = (type: string) =>
  withStore((store) => store.eventsSince(0, 100_000).flatMap(({ event }) => (event.type === type ? [event] : [])));
const adapters = () => (existsSync(join(lab.folder, 'adapters')) ? readdirSync(join(lab.folder, 'adapters')) : []);
const checkpointFile = (step: number, cycle = 1) =>
  withStore((store) => {
    const experimentId = store.experiments.byName('first')?.experimentId ?? '';
    const training = store.trainings.ofCycle({ experimentId, cycle });
    const row = store.trainings.checkpoints(training?.trainingId ?? '').find((known) => known.step === step);
    return join(lab.folder, row?.folder ?? '', 'adapter_model.safetensors');
  });

describe('a cycle to its end', () => {
  it('registers L1 of the checkpoint with the lowest validation loss, with its adapter and card in place', async () => {
    expect(await run()).toMatchObject({ state: 'done' });
    const [l0, l1] = generations();
    expect(l1).toMatchObject({
      number: 1,
      parentGenerationId: l0?.generationId,
      modelSha256: l0?.modelSha256,
      adapterSha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    const bytes = readFileSync(adapterFile(lab.folder, l1?.adapterSha256 ?? ''));
    expect(sha256(bytes)).toBe(l1?.adapterSha256);
    expect(bytes).toEqual(readFileSync(checkpointFile(6)));
    const report = await show();
    expect(report).toMatchObject({
      training: { state: 'finished', step: 6, steps: 6 },
      choice: { step: 6, by: 'lowest-validation-loss' },
      adapter: { sha256: l1?.adapterSha256, rank: 4 },
      parity: { parity: { passed: true, klBase: 0, klAdapted: 0 } },
      generation: { number: 1, card: 'generations/first-L1/README.md' },
    });
    expect(report.checkpoints.map(({ step, chosen }) => [step, chosen])).toEqual([
      [2, false],
      [4, false],
      [6, true],
    ]);
    const card = readFileSync(join(lab.folder, 'generations/first-L1/README.md'), 'utf8');
    for (const said of [
      '# first L1',
      `adapters/${l1?.adapterSha256}.gguf`,
      '| L1 | tr_',
      '| learningRate | 0.00003 |',
      '| one | ',
      'Passed: divergence 0.00 of at most 0.000100 nats, direction 1.000',
      'Trained on cpu: scripted with Python 3.11.0',
    ])
      expect(card).toContain(said);
    expect(sha256(card)).toBe(l1?.cardHash);
    expect(readdirSync(join(lab.folder, 'exporting'))).toEqual([]);
  });

  it('makes L2 of L1 in the same run, whose adapter is both adapters one after another', async () => {
    expect(await run({ cycles: [1, 2] })).toMatchObject({ state: 'done' });
    const [, l1, l2] = generations();
    expect(l2).toMatchObject({ number: 2, parentGenerationId: l1?.generationId });
    const [first, second] = [checkpointFile(6, 1), checkpointFile(6, 2)].map((path) => readFileSync(path));
    expect(readFileSync(adapterFile(lab.folder, l2?.adapterSha256 ?? ''))).toEqual(
      Buffer.concat([first ?? Buffer.of(), second ?? Buffer.of()]),
    );
    expect((await show(2)).adapter?.rank).toBe(8);
    const card = readFileSync(join(lab.folder, 'generations/first-L2/README.md'), 'utf8');
    expect(card).toContain('made by training L1 on its own selected runs');
    expect(card.match(/^\| L[12] \| tr_/gm)).toEqual(['| L1 | tr_', '| L2 | tr_']);
    // In cycle 2 every part was played by L1.
    withStore((store) => {
      const experimentId = store.experiments.byName('first')?.experimentId ?? '';
      const collected = store.episodes.ofStage({ experimentId, cycle: 2, stage: 'collect' });
      expect(collected.map((row) => row.attempt?.generationId)).toEqual(Array(4).fill(l1?.generationId));
    });
  });
});

it('is the fold of its events', async () => {
  await run();
  const other = mkdtempSync(join(tmpdir(), 'mass-export-fold-'));
  const copy = openStore(other);
  withStore((store) => {
    copy.replay(store.eventsSince(0, 100_000));
    expect(copy.dump()).toEqual(store.dump());
    for (const table of ['checkpoint_choices', 'exported_adapters', 'parities'])
      expect([table, store.dump()[table]?.length]).toEqual([table, 1]);
  });
  copy.close();
  rmSync(other, { recursive: true });
});

describe('running again', () => {
  it('does nothing more, and puts back a file that is gone', async () => {
    await run();
    const [, l1] = generations();
    const before = withStore((store) => store.lastSeq());
    expect(await run({ stages: ['export'] })).toMatchObject({ state: 'done' });
    const types = withStore((store) => store.eventsSince(before, 1000).map(({ event }) => event.type));
    expect(types).toEqual(['run.started', 'stage.started', 'stage.ended', 'run.ended']);

    rmSync(join(lab.folder, 'generations'), { recursive: true });
    rmSync(adapterFile(lab.folder, l1?.adapterSha256 ?? ''));
    expect(await run({ stages: ['export'] })).toMatchObject({ state: 'done' });
    expect(sha256(readFileSync(adapterFile(lab.folder, l1?.adapterSha256 ?? '')))).toBe(l1?.adapterSha256);
    expect(sha256(readFileSync(join(lab.folder, 'generations/first-L1/README.md')))).toBe(l1?.cardHash);
    expect(generations()).toHaveLength(2);
  });

  it('uses what an interrupted export finished', async () => {
    const dying = scriptedWorld();
    const world: RunWorld = {
      ...dying,
      scoreServed: () => Promise.reject(new Error('The machine lost its power.')),
    };
    expect(await run({ world })).toMatchObject({ state: 'failed' });
    expect([eventsOf('adapter.exported').length, eventsOf('parity.measured').length]).toEqual([1, 0]);
    // What a killed process leaves would be in the way of the files of the next one.
    const scratch = join(lab.folder, 'exporting', (await show()).training?.trainingId ?? '');
    mkdirSync(scratch);
    writeFileSync(join(scratch, 'trainer-base'), '');
    expect(await run({ stages: ['export'] })).toMatchObject({ state: 'done' });
    expect(eventsOf('adapter.exported')).toHaveLength(1);
    expect(eventsOf('checkpoint.chosen')).toHaveLength(1);
    expect(generations()).toHaveLength(2);
  });

  it('goes on where a stop found it, and gives the device back', async () => {
    let scoring: () => void = () => undefined;
    const begun = new Promise<void>((resolve) => {
      scoring = resolve;
    });
    const slow: RunWorld = {
      ...scriptedWorld(),
      scoreServed: (_target, _store, { signal }) => {
        scoring();
        return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(cancelled())));
      },
    };
    await withEngine(async (engine) => {
      await engine.handlers['experiment.create']({ name: 'first', config: config() }, context);
      const { runId } = await engine.handlers['run.start']({ name: 'first', stages: cycleStages }, context);
      await begun;
      expect((await engine.handlers['engine.info']({}, context)).lease).toBe('export L1 for "first"');
      await engine.handlers['engine.stop']({ mode: 'now', shutdown: false }, context);
      expect(await engine.handlers['run.wait']({ runId }, context)).toMatchObject({ state: 'stopped' });
      expect((await engine.handlers['engine.info']({}, context)).lease).toBeNull();
      expect(readdirSync(join(lab.folder, 'exporting'))).toEqual([]);
    }, slow);
    expect(await run({ stages: ['export'] })).toMatchObject({ state: 'done' });
    expect(eventsOf('adapter.exported')).toHaveLength(1);
  });

  it('makes everything anew of a training whose checkpoints were lost and that was trained again', async () => {
    const gated = config({ gates: { beforeTrain: false, beforeRegister: true, onFindings: false } });
    expect(await run({ config: gated })).toMatchObject({ state: 'gated' });
    rmSync(join(lab.folder, 'trainings'), { recursive: true });
    expect(await run({ config: gated })).toMatchObject({ state: 'gated' });
    const made = ['checkpoint.chosen', 'adapter.exported', 'parity.measured'].map((type) => eventsOf(type).length);
    expect(made).toEqual([2, 2, 2]);
  });

  it('refuses a checkpoint or an adapter that was touched', async () => {
    await run({ stages: cycleStages.slice(0, -1) });
    const path = checkpointFile(6);
    const bytes = readFileSync(path);
    writeFileSync(path, Buffer.concat([bytes, Buffer.of(1)]));
    expect(await run({ stages: ['export'] })).toMatchObject({ error: { code: 'conflict' } });
    writeFileSync(path, bytes);
    const damaged = adapterFile(lab.folder, sha256(bytes)); // the scripted trainer converts to the same bytes
    await run({
      stages: ['export'],
      config: config(),
      world: { ...scriptedWorld(), scoreServed: () => Promise.reject() },
    });
    writeFileSync(damaged, 'broken');
    expect(await run({ stages: ['export'] })).toMatchObject({
      state: 'failed',
      message: expect.stringContaining('is damaged'),
    });
    expect(readFileSync(damaged, 'utf8')).toBe('broken');
    expect(generations()).toHaveLength(1);
  });
});

describe('the parity gate', () => {
  /** Served, the adapter does the opposite of what it was trained to do. */
  const wrong = scriptedWorld({
    served: (_generation, registered) => {
      const first = registered ? 0.5 : 0.25;
      return [Math.log(first), Math.log(1 - first)];
    },
  });

  it('registers nothing when the served adapter is not the trained one, and measures again next time', async () => {
    const end = await run({ world: wrong });
    expect(end).toMatchObject({ state: 'failed', error: { code: 'conflict', details: { cosine: -1, passed: false } } });
    expect(end.message).toMatch(/divergence 0\.549 of at most 0\.000100 nats, direction -1\.000 of at least 0\.900/);
    expect(generations()).toHaveLength(1);
    const failed = await show();
    expect([failed.parity?.parity.passed, failed.generation]).toEqual([false, null]);
    expect(existsSync(join(lab.folder, 'generations'))).toBe(false);

    expect(await run({ stages: ['export'] })).toMatchObject({ state: 'done' });
    expect(eventsOf('parity.measured').map((event) => 'passed' in event && event.passed)).toEqual([false, true]);
    expect(generations()).toHaveLength(2);
  });

  it('stores what it measured as a report', async () => {
    await run();
    const [event] = eventsOf('parity.measured');
    const report = withStore((store) =>
      ParityReport.parse(store.artifacts.json(event && 'reportHash' in event ? event.reportHash : '')),
    );
    expect(report.prompts.length).toBeGreaterThan(0);
    expect(report.parity.positions).toBe(report.prompts.length * report.lastPositions);
    expect(report.sameTop.adapted).toBe(1);
  });
});

describe('a person', () => {
  const gated = () => config({ gates: { beforeTrain: false, beforeRegister: true, onFindings: false } });

  it('approves before a generation is registered, and is asked again for another checkpoint', async () => {
    const end = await run({ config: gated() });
    expect(end.state).toBe('gated');
    expect(end.message).toMatch(
      /L1 of "first" waits to be registered: validation loss 2\.0000 before training, 1\.1429 at step 6; parity divergence .* Go on with: mass approve first before-register/,
    );
    expect(generations()).toHaveLength(1);
    await decide('rejected');
    expect((await run({ stages: ['export'], config: gated() })).message).toContain('rejected');

    expect((await choose(4, 'the last one overfits')).choice).toEqual({
      step: 4,
      by: 'person',
      note: 'the last one overfits',
    });
    expect((await run({ stages: ['export'], config: gated() })).message).toContain('at step 4');
    await decide('approved');
    expect(await run({ stages: ['export'], config: gated() })).toMatchObject({ state: 'done' });
    const [, l1] = generations();
    expect(readFileSync(adapterFile(lab.folder, l1?.adapterSha256 ?? ''))).toEqual(readFileSync(checkpointFile(4)));
    expect(adapters()).toHaveLength(2); // of step 6, which nobody serves, and of step 4
    const card = readFileSync(join(lab.folder, 'generations/first-L1/README.md'), 'utf8');
    expect(card).toContain('chosen by a person: the last one overfits');
  });

  it('cannot choose what is not there, nor anything once the generation is registered', async () => {
    await run({ stages: cycleStages.slice(0, -2) });
    await expect(choose(2)).rejects.toThrow(/Cycle 1 of "first" is not trained yet; run: mass train first/);
    await run({ stages: ['train'] });
    await expect(choose(3)).rejects.toThrow(/no checkpoint of step 3; there are: 2, 4, 6/);
    await run({ stages: ['export'] });
    await expect(choose(2)).rejects.toMatchObject({ code: 'conflict' });
  });

  it('has to choose when a validation loss is not finite, or the training diverged', async () => {
    const rising = scriptedWorld({ trainer: { validationOf: (step) => (step === 0 ? 1 : 1 + step) } });
    const impatient = config({ train: { ...config().train, patience: 2 } });
    const end = await run({ world: rising, config: impatient });
    expect(end).toMatchObject({ state: 'gated', message: expect.stringContaining('choose one of the steps 2, 4') });
    expect(await run({ stages: ['export'], config: impatient })).toMatchObject({
      state: 'gated',
      message: expect.stringContaining('The training diverged'),
    });
    await choose(2);
    expect(await run({ config: impatient, world: rising })).toMatchObject({ state: 'done' });
    expect(generations()).toHaveLength(2);
  });
});

describe('merging', () => {
  const merge = (engine: Engine, out: string, progress: (label: string, done: number) => void = () => undefined) =>
    engine.handlers['export.merge'](
      { name: 'first', cycle: 1, type: 'f16', out },
      { ...context, progress: ({ label, done }) => progress(label, done) },
    );

  it('needs a registered generation and an idle engine, says what it does, and is recorded', async () => {
    // Its header is read, to know how much disk the merged model takes.
    writeFileSync(join(lab.folder, 'base.gguf'), buildGguf(smallModel));
    withStore((store) => {
      const { modelId, bytes, sha256: hash, architecture, source } = store.models.byId('scripted') as ModelRow;
      const path = join(lab.folder, 'base.gguf');
      store.append({ type: 'model.registered', modelId, path, bytes, sha256: hash, architecture, source });
    });
    await run({ stages: cycleStages.slice(0, -1) });
    const out = join(lab.folder, 'merged');
    await withEngine(async (engine) => {
      await expect(merge(engine, out)).rejects.toThrow(/has no L1/);
      const { runId } = await engine.handlers['run.start']({ name: 'first', stages: ['export'] }, context);
      await engine.handlers['run.wait']({ runId }, context);
      const again = await engine.handlers['run.start']({ name: 'first', stages: ['export'] }, context);
      await expect(merge(engine, out)).rejects.toThrow(/is running and needs the device/);
      await engine.handlers['run.wait'](again, context);
      await expect(merge(engine, 'merged')).rejects.toMatchObject({ code: 'usage' });
      const told: string[] = [];
      expect(await merge(engine, out, (label, done) => told.push(`${done} ${label}`))).toMatchObject({
        folder: out,
        gguf: 'first-L1-F16.gguf',
      });
      expect(told).toEqual(['0 waiting for the device', '0 merging base and adapters', '1 writing first-L1-F16.gguf']);
      await expect(merge(engine, out)).rejects.toMatchObject({ code: 'conflict' });
    });
    expect(eventsOf('notice')).toContainEqual(expect.objectContaining({ code: 'merged' }));
  });
});

it('says what is missing when the cycle is not trained', async () => {
  expect(await run({ stages: ['export'] })).toMatchObject({
    state: 'failed',
    error: { code: 'usage' },
    message: 'Cycle 1 of "first" is not trained yet; run: mass train first',
  });
});
