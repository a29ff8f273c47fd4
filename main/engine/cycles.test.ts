import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { silentLogger } from '../common/base/logger.ts';
import type { StageName } from '../common/domain/events.ts';
import { createEngine, type Engine } from './engine.ts';
import { openStore, type Store } from './store/store.ts';
import { generationsWorld, registerL1 } from './testing/scripted-generations.ts';
import { scriptedTeam } from './testing/scripted-team.ts';
import { registerScriptedModel, scriptedConfig, writeTaskLibrary } from './testing/scripted-world.ts';

let folder: string;
let library: string;
/** "attempt of L0", "presentation of L1": who was asked what, each once */
const asked = new Set<string>();
beforeEach(async () => {
  asked.clear();
  folder = mkdtempSync(join(tmpdir(), 'mass-cycles-'));
  library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-tasks-')));
  inStore(registerScriptedModel);
  await withEngine((engine) =>
    engine.handlers['experiment.create']({ name: 'first', config: scriptedConfig(library) }, context),
  );
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  rmSync(library, { recursive: true });
});

const context = { signal: new AbortController().signal, progress: () => undefined };
const stages: StageName[] = ['search', 'collect', 'rank', 'select'];

function inStore<T>(use: (store: Store) => T): T {
  const store = openStore(folder);
  try {
    return use(store);
  } finally {
    store.close();
  }
}

async function withEngine<T>(use: (engine: Engine) => Promise<T>): Promise<T> {
  const world = generationsWorld((generation) => (owner, request) => {
    asked.add(`${owner.split(':')[0]} of L${generation}`);
    return scriptedTeam(owner, request);
  });
  const engine = await createEngine({ dataFolder: folder, version: 'test', logger: silentLogger, world });
  try {
    return await use(engine);
  } finally {
    await engine.shutdown('now');
  }
}

async function run(engine: Engine, cycles: number[], only: StageName[] = stages) {
  const { runId } = await engine.handlers['run.start']({ name: 'first', stages: only, cycles }, context);
  return engine.handlers['run.wait']({ runId }, context);
}
const statusOf = (engine: Engine, cycle?: number) =>
  engine.handlers['experiment.status']({ name: 'first', cycle }, context);

it('plays cycle 2 with L1 in all three roles, with the seeds of cycle 2', async () => {
  inStore((store) => registerL1(store, 'first'));
  await withEngine(async (engine) => {
    expect((await run(engine, [2])).state).toBe('done');
    const status = await statusOf(engine);
    expect([status.cycle, status.model]).toEqual([2, 'scripted (00000000) as L1, adapter aaaaaaaa']);
    expect(status.tasks.map((task) => task.champion)).toEqual([1, 1, 1]);
  });
  expect([...asked].sort()).toEqual(['attempt of L1', 'presentation of L1', 'proposal of L1']);
  inStore((store) => {
    const experimentId = store.experiments.byName('first')?.experimentId ?? '';
    const collected = store.episodes.ofTask({ experimentId, cycle: 2, stage: 'collect', taskId: 'one' });
    expect(collected.map((episode) => episode.seed)).toEqual([1_711_100, 1_711_101, 1_711_102, 1_711_103]);
    expect(new Set(store.episodes.attemptsOfExperiment(experimentId).map((attempt) => attempt.generationId))).toEqual(
      new Set([`${experimentId}-L1`]),
    );
  });
});

it('runs every stage of a cycle before the next begins, and keeps the cycles apart', async () => {
  inStore((store) => registerL1(store, 'first'));
  await withEngine(async (engine) => {
    expect((await run(engine, [1, 2])).state).toBe('done');
    const [one, two] = [await statusOf(engine, 1), await statusOf(engine, 2)];
    expect([one.cycle, two.cycle, (await statusOf(engine)).cycle]).toEqual([1, 2, 2]);
    for (const status of [one, two]) {
      expect(status.stages.slice(0, 4).map(({ stage, state }) => [stage, state])).toEqual(
        stages.map((stage) => [stage, 'done']),
      );
      expect(status.tasks.map((task) => task.collected)).toEqual([4, 4, 0]);
    }
    expect([one.model, two.model]).toEqual([
      'scripted (00000000) as L0',
      'scripted (00000000) as L1, adapter aaaaaaaa',
    ]);
  });
  expect([...asked].sort()).toEqual(
    ['attempt', 'presentation', 'proposal'].flatMap((what) => [`${what} of L0`, `${what} of L1`]),
  );
  inStore((store) => {
    const experimentId = store.experiments.byName('first')?.experimentId ?? '';
    const started = store
      .eventsSince(0, 100_000)
      .flatMap(({ event }) => (event.type === 'stage.started' ? [`${event.cycle} ${event.stage}`] : []));
    expect(started).toEqual([1, 2].flatMap((cycle) => stages.map((stage) => `${cycle} ${stage}`)));
    const [row] = store.experiments.runs(experimentId);
    expect([row?.cycle, row?.cyclesJson]).toEqual([1, '[1,2]']);
  });
});

it('refuses a cycle before anything runs when its generation is missing, or it has no seeds', async () => {
  await withEngine(async (engine) => {
    const missing = {
      code: 'usage',
      message: '"first" has no L1 (it has L0); make it with: mass run first --cycle 1',
    };
    await expect(run(engine, [2])).rejects.toMatchObject(missing);
    await expect(run(engine, [1, 2])).rejects.toMatchObject(missing);
    await expect(run(engine, [3])).rejects.toMatchObject({ code: 'usage' });
  });
  inStore((store) => registerL1(store, 'first'));
  await withEngine((engine) => expect(run(engine, [1, 2, 3])).rejects.toThrow(/no seed base for cycle 3/));
  expect(
    inStore((store) => store.experiments.all().flatMap((row) => store.experiments.runs(row.experimentId))),
  ).toEqual([]);
});

it('says in which cycle it stopped, loads no model for what is done, and goes on', async () => {
  inStore((store) => registerL1(store, 'first'));
  await withEngine(async (engine) => {
    await run(engine, [1]);
    asked.clear();
    const { runId } = await engine.handlers['run.start']({ name: 'first', stages, cycles: [1, 2] }, context);
    await expect.poll(() => asked.has('attempt of L1'), { timeout: 20_000, interval: 5 }).toBe(true);
    await engine.handlers['engine.stop']({ mode: 'after', shutdown: false }, context);
    const end = await engine.handlers['run.wait']({ runId }, context);
    expect(end.message).toBe('Stopped during search of cycle 2; the next run continues there.');
    expect([...asked].filter((what) => what.endsWith('L0'))).toEqual([]);
    expect((await run(engine, [1, 2])).state).toBe('done');
  });
});

it('plans every cycle that is asked for', async () => {
  await withEngine(async (engine) => {
    const { rows } = await engine.handlers['experiment.plan']({ name: 'first', cycles: [1, 2] }, context);
    const of = (cycle: number) => rows.filter((row) => row.cycle === cycle).map(({ cycle: _, ...row }) => row);
    expect(of(1).map((row) => row.stage)).toEqual(stages);
    expect(of(2)).toEqual(of(1));
  });
});
