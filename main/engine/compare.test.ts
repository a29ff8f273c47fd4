import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../common/base/logger.ts';
import { createEngine, type Engine } from './engine.ts';
import { openStore, type Store } from './store/store.ts';
import { generationsWorld, registerL1, scriptedRollouts } from './testing/scripted-generations.ts';
import { registerScriptedModel, scriptedConfig, writeTaskLibrary } from './testing/scripted-world.ts';
import type { RunWorld } from './world.ts';

let folder: string;
let library: string;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mass-compare-'));
  library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-tasks-')));
  inStore(registerScriptedModel);
  const config = { ...scriptedConfig(library), seedPolicy: 'episode' };
  await withEngine((engine) => engine.handlers['experiment.create']({ name: 'first', config }, context));
  inStore((store) => registerL1(store, 'first'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  rmSync(library, { recursive: true });
});

const context = { signal: new AbortController().signal, progress: () => undefined };

function inStore<T>(use: (store: Store) => T): T {
  const store = openStore(folder);
  try {
    return use(store);
  } finally {
    store.close();
  }
}

async function withEngine<T>(
  use: (engine: Engine) => Promise<T>,
  world: RunWorld = generationsWorld(scriptedRollouts),
) {
  const engine = await createEngine({ dataFolder: folder, version: 'test', logger: silentLogger, world });
  try {
    return await use(engine);
  } finally {
    await engine.shutdown('now');
  }
}

interface Wish {
  readonly generation: number;
  readonly set?: string;
  readonly count?: number;
  readonly split?: 'train' | 'test' | 'all';
}

async function rollout(engine: Engine, { set = 'default', ...wish }: Wish) {
  const { runId } = await engine.handlers['rollout.start']({ name: 'first', set, ...wish }, context);
  const end = runId === null ? null : await engine.handlers['run.wait']({ runId }, context);
  const { generation } = wish;
  return { end, report: await engine.handlers['rollout.show']({ name: 'first', generation, set }, context) };
}

async function compare(engine: Engine, first: number, second: number) {
  const pair = { name: 'first', first, second, set: 'default' };
  const { runId } = await engine.handlers['compare.start'](pair, context);
  const end = runId === null ? null : await engine.handlers['run.wait']({ runId }, context);
  return { end, report: await engine.handlers['compare.show'](pair, context) };
}

const done = { state: 'done', message: 'Every stage that was asked for is done.', error: null };

describe('rollouts', () => {
  it('run the bare prompt of every task with the seeds of the method, by the generation that was asked', async () => {
    await withEngine(async (engine) => {
      const { end, report } = await rollout(engine, { generation: 1, count: 2 });
      expect(end).toEqual(done);
      expect(report).toMatchObject({ generation: 1, count: 2, planned: 6, settled: 6, complete: true });
    });
    inStore((store) => {
      const [set] = store.rollouts.sets(store.experiments.byName('first')?.experimentId ?? '');
      const runs = store.episodes.ofSet(set?.setId ?? '');
      expect(runs.map((run) => [run.taskId, run.replicate, run.seed])).toEqual([
        ['one', 0, 911_100],
        ['one', 1, 911_101],
        ['three', 0, 911_300],
        ['three', 1, 911_301],
        ['two', 0, 911_200],
        ['two', 1, 911_201],
      ]);
      for (const { cycle, workflowVersion, attempt } of runs) {
        expect([cycle, workflowVersion, attempt?.generationId]).toEqual([0, null, set?.generationId]);
        expect(store.artifacts.text(attempt?.promptHash ?? '')).toMatch(/^Write report\.md about task \w+\.\n$/);
      }
      expect(set).toMatchObject({ generation: 1, name: 'default', count: 2, seedBase: 910_000, runs: 6, completed: 6 });
    });
  });

  it('count halted runs as not completed, and runs that delegated', async () => {
    await withEngine(async (engine) => {
      const { report } = await rollout(engine, { generation: 0, count: 2 });
      expect(report.tasks.map((row) => [row.taskId, row.runs, row.completed, row.delegated])).toEqual([
        ['one', 2, 2, 0],
        ['two', 2, 1, 0],
        ['three', 2, 2, 0],
      ]);
      expect(report.splits.map((row) => [row.split, row.runs, row.completed])).toEqual([
        ['train', 4, 3],
        ['test', 2, 2],
      ]);
      const l1 = await rollout(engine, { generation: 1, count: 2 });
      expect([l1.report.all.completed, l1.report.all.delegated]).toEqual([6, 2]);
    });
  });

  it('take the content of a set from its name, and refuse the name with other content', async () => {
    await withEngine(async (engine) => {
      await rollout(engine, { generation: 0, count: 1, split: 'test' });
      const { report } = await rollout(engine, { generation: 1 });
      expect([report.count, report.tasks.map((row) => row.taskId)]).toEqual([1, ['three']]);
      for (const other of [{ count: 2 }, { split: 'all' as const }])
        for (const generation of [0, 1])
          await expect(rollout(engine, { generation, ...other })).rejects.toMatchObject({ code: 'conflict' });
      await expect(rollout(engine, { generation: 0, count: 2 })).rejects.toThrow(
        'The set "default" exists with other content (count: 1 -> 2); a set never changes, so name another with --set.',
      );
      expect((await rollout(engine, { generation: 0, set: 'two', count: 2, split: 'test' })).end).toEqual(done);
      expect((await rollout(engine, { generation: 0 })).report.settled).toBe(1);
    });
  });

  it('of another set are other episodes, though task, run and seed are the same', async () => {
    await withEngine(async (engine) => {
      await rollout(engine, { generation: 0, count: 1 });
      await rollout(engine, { generation: 0, count: 1, set: 'again' });
    });
    inStore((store) => {
      const sets = store.rollouts.sets(store.experiments.byName('first')?.experimentId ?? '');
      const [one, other] = sets.map((set) => store.episodes.ofSet(set.setId));
      expect(one?.map((run) => run.seed)).toEqual(other?.map((run) => run.seed));
      expect(new Set([...(one ?? []), ...(other ?? [])].map((run) => run.attempt?.attemptId)).size).toBe(6);
    });
  });

  it('do nothing when the set is complete, and say what to do about a generation that is not there', async () => {
    await withEngine(async (engine) => {
      await rollout(engine, { generation: 0, count: 1 });
      expect((await rollout(engine, { generation: 0, count: 1 })).end).toBeNull();
      await expect(rollout(engine, { generation: 2 })).rejects.toMatchObject({
        code: 'usage',
        message: '"first" has no L2 (it has L0, L1); make it with: mass run first --cycle 2',
      });
    });
  });
});

describe('a comparison', () => {
  it('judges pairs by L0 in both orders and gives win rates by task and split', async () => {
    const judges: number[] = [];
    const world = generationsWorld((generation) => (owner, request) => {
      if (owner.startsWith('presentation:')) judges.push(generation);
      return scriptedRollouts(generation)(owner, request);
    });
    await withEngine(async (engine) => {
      for (const generation of [0, 1]) await rollout(engine, { generation, count: 2 });
      const { end, report } = await compare(engine, 1, 0);
      expect(end).toEqual(done);
      expect(report).toMatchObject({ first: 1, second: 0, evaluator: 0, count: 2, pairs: 6, judged: 6 });
      const told = report.result?.tasks.map((row) => [row.taskId, row.split, row.wins, row.losses, row.ties]);
      expect(told).toEqual([
        ['one', 'train', 2, 0, 0],
        ['two', 'train', 0, 1, 1],
        ['three', 'test', 1, 0, 1],
      ]);
      const { all, splits, judging } = report.result ?? {};
      expect([all?.wins, all?.losses, all?.ties, all?.winRate.rate]).toEqual([3, 1, 2, 0.75]);
      expect(all?.winRate.low).toBeCloseTo(0.3006, 4); // Wilson, 3 of 4
      expect(all?.winRate.high).toBeCloseTo(0.9544, 4);
      expect(splits?.map((row) => [row.split, row.pairs, row.winRate.rate])).toEqual([
        ['train', 4, 2 / 3],
        ['test', 2, 1],
      ]);
      // the run that said nothing is judged by what it left: the scripted evaluator then prefers whatever stands first
      expect(judging).toMatchObject({
        flipped: 1,
        haltedPairs: 1,
        unlikePairs: 0,
        decidedPresentations: 10,
        firstSlotWins: 6,
      });
      expect([all?.first.completed, all?.second.completed, all?.first.delegated, all?.second.delegated]).toEqual([
        6, 5, 2, 0,
      ]);
    }, world);
    expect(judges).toEqual(Array<number>(12).fill(0));
  });

  it('is kept once a pair of sets and read from either side', async () => {
    await withEngine(async (engine) => {
      for (const generation of [0, 1]) await rollout(engine, { generation, count: 2 });
      await compare(engine, 1, 0);
      const { end, report } = await compare(engine, 0, 1);
      expect(end).toBeNull();
      expect([report.first, report.second, report.result?.all.wins, report.result?.all.losses]).toEqual([0, 1, 1, 3]);
      expect(report.result?.all.winRate.rate).toBe(0.25);
      const list = await engine.handlers['evaluation.list']({ name: 'first' }, context);
      expect(list.comparisons).toEqual([expect.objectContaining({ first: 1, second: 0, pairs: 6, judged: 6 })]);
      expect(list.sets.map((set) => [set.generation, set.settled])).toEqual([
        [0, 6],
        [1, 6],
      ]);
    });
  });

  it('needs two different generations with complete rollouts', async () => {
    await withEngine(async (engine) => {
      await rollout(engine, { generation: 0, count: 1 });
      await expect(compare(engine, 1, 0)).rejects.toMatchObject({
        code: 'usage',
        message: 'The rollouts of L1 in the set "default" are not there; run: mass rollout first --generation L1',
      });
      await expect(compare(engine, 0, 0)).rejects.toMatchObject({ code: 'usage' });
    });
  });

  it('leaves a log whose fold is every table', async () => {
    await withEngine(async (engine) => {
      for (const generation of [0, 1]) await rollout(engine, { generation, count: 1 });
      await compare(engine, 1, 0);
    });
    inStore((store) => {
      const other = mkdtempSync(join(tmpdir(), 'mass-fold-'));
      const copy = openStore(other);
      copy.replay(store.eventsSince(0, 100_000));
      expect(copy.dump()).toEqual(store.dump());
      const { comparisons, rollout_sets: sets } = store.dump();
      expect([comparisons?.length, sets?.length]).toEqual([1, 2]);
      copy.close();
      rmSync(other, { recursive: true });
    });
  });
});

it('goes on where it was stopped, at once or after the units in flight', async () => {
  const slow = generationsWorld(scriptedRollouts, 40);
  const stopSoon = async (engine: Engine, mode: 'now' | 'after', runId: string | null) => {
    await new Promise((resolve) => setTimeout(resolve, 60));
    await engine.handlers['engine.stop']({ mode, shutdown: false }, context);
    return engine.handlers['run.wait']({ runId: runId ?? '' }, context);
  };
  for (const mode of ['now', 'after'] as const)
    await withEngine(async (engine) => {
      const wish = { name: 'first', generation: 0, set: 'default', count: 3 };
      const { runId } = await engine.handlers['rollout.start'](wish, context);
      expect((await stopSoon(engine, mode, runId)).state).toBe('stopped');
    }, slow);
  await withEngine(async (engine) => {
    for (const generation of [0, 1]) expect((await rollout(engine, { generation, count: 3 })).report.settled).toBe(9);
  });
  await withEngine(async (engine) => {
    const pair = { name: 'first', first: 1, second: 0, set: 'default' };
    const { runId } = await engine.handlers['compare.start'](pair, context);
    expect((await stopSoon(engine, 'after', runId)).state).toBe('stopped');
    expect((await engine.handlers['compare.show'](pair, context)).result).toBeNull();
  }, slow);
  await withEngine(async (engine) => {
    const { report } = await compare(engine, 1, 0);
    expect(report.result?.all.pairs).toBe(9);
  });
});
