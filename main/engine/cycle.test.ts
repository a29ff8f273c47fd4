import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../common/base/logger.ts';
import type { ExperimentConfigInput } from '../common/domain/config.ts';
import type { StageName } from '../common/domain/events.ts';
import { createEngine } from './engine.ts';
import { completionMessages } from './stages/record-completion.ts';
import { openStore } from './store/store.ts';
import { scriptedTeam } from './testing/scripted-team.ts';
import { registerScriptedModel, scriptedConfig, scriptedWorld, writeTaskLibrary } from './testing/scripted-world.ts';
import type { RunWorld } from './world.ts';

let folder: string;
let library: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-cycle-'));
  library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-tasks-')));
  const store = openStore(folder);
  registerScriptedModel(store);
  store.close();
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  rmSync(library, { recursive: true });
});

const context = { signal: new AbortController().signal, progress: () => undefined };
const allStages: StageName[] = ['search', 'collect', 'rank', 'select'];

async function runCycle(
  options: { stages?: StageName[]; config?: Partial<ExperimentConfigInput>; world?: RunWorld } = {},
) {
  const engine = await createEngine({
    dataFolder: folder,
    version: 'test',
    logger: silentLogger,
    world: options.world ?? scriptedWorld(),
  });
  try {
    await engine.handlers['experiment.create'](
      { name: 'cycle', config: { ...scriptedConfig(library), ...options.config } },
      context,
    );
    const { runId } = await engine.handlers['run.start'](
      { name: 'cycle', stages: options.stages ?? allStages },
      context,
    );
    const end = await engine.handlers['run.wait']({ runId }, context);
    const status = await engine.handlers['experiment.status']({ name: 'cycle' }, context);
    return { end, status };
  } finally {
    await engine.shutdown('now');
  }
}

describe('a whole cycle with a scripted model', () => {
  it('finds the champion by arbitration, collects, ranks and selects as the rules say', async () => {
    const { end, status } = await runCycle();
    expect(end).toEqual({ state: 'done', message: 'Every stage that was asked for is done.', error: null });
    for (const task of status.tasks) {
      expect(task.versions.map((version) => version.verdict)).toEqual([
        'reference: won',
        'reference: won, champion: won',
        'reference: won, champion: lost',
      ]);
      expect([task.champion, task.provenWin]).toEqual([1, true]);
    }
    const [one, two, three] = status.tasks;
    for (const task of [one, two]) {
      expect([task?.collected, task?.matches, task?.ratings.length]).toEqual([4, 6, 4]);
      expect(task?.ratings.map((rating) => rating.decision)).toEqual(['train', 'train', 'validate', 'drop']);
    }
    expect([three?.split, three?.collected, three?.ratings.length]).toEqual(['test', 0, 0]);
    expect(
      status.stages.map(({ stage, state, done, planned }) => [stage, state, done === planned && planned > 0]),
    ).toEqual([
      ...allStages.map((stage) => [stage, 'done', true]),
      ...['render', 'train', 'export'].map((stage) => [stage, 'not yet run', false]),
    ]);
  });

  it('leaves a log whose fold is every table, and conversations that can be rebuilt', async () => {
    await runCycle();
    const store = openStore(folder);
    const other = mkdtempSync(join(tmpdir(), 'mass-fold-'));
    const copy = openStore(other);
    copy.replay(store.eventsSince(0, 100_000));
    expect(copy.dump()).toEqual(store.dump());
    copy.close();
    rmSync(other, { recursive: true });
    const attempt = store.episodes.attemptsOfExperiment(store.experiments.byName('cycle')?.experimentId ?? '')[0];
    const [thread] = store.threads.ofOwner('attempt', attempt?.attemptId ?? '');
    const last = store.threads.completions(thread?.threadId ?? '').at(-1);
    expect(completionMessages(store, last?.completionId ?? '').map((message) => message.role)).toEqual([
      'system',
      'user',
      'assistant',
      'tool',
    ]);
    store.close();
  });

  it('does nothing twice when run again', async () => {
    await runCycle();
    const before = openStore(folder);
    const completions = before.threads.totals(before.experiments.byName('cycle')?.experimentId ?? '').completions;
    before.close();
    const { end } = await runCycle();
    expect(end.state).toBe('done');
    const after = openStore(folder);
    expect(after.threads.totals(after.experiments.byName('cycle')?.experimentId ?? '').completions).toBe(completions);
    after.close();
  });

  it('excludes a task without a proven win when the configuration requires one', async () => {
    const { end, status } = await runCycle({
      world: scriptedWorld({
        answer: (owner, request) => (owner.startsWith('presentation:') ? tie : scriptedTeam(owner, request)),
      }),
    });
    expect(end.state).toBe('done');
    expect(status.tasks.map((task) => [task.champion, task.provenWin, task.collected])).toEqual([
      [0, false, 0],
      [0, false, 0],
      [0, false, 0],
    ]);
    expect(status.tasks[0]?.excluded).toMatch(/No workflow beat the bare prompt/);
  });

  it('retains by elite: the retained best is the incumbent, and one final judgment decides the proven win', async () => {
    const { status } = await runCycle({
      stages: ['search'],
      config: { search: { policy: 'elite', updates: 2, callTokens: 4000 } },
    });
    expect(status.tasks.map((task) => [task.champion, task.provenWin])).toEqual([
      [1, true],
      [1, true],
      [1, true],
    ]);
  });
});

const tie = {
  role: 'assistant' as const,
  content: JSON.stringify({ rationale: 'equal', citations: [], verdict: 'tie' }),
};

describe('trouble', () => {
  it('retries infrastructure failures and never judges them', async () => {
    let failures = 0;
    const { end, status } = await runCycle({
      world: scriptedWorld({
        answer: (owner, request) => {
          if (owner.startsWith('attempt:') && failures < 2) {
            failures++;
            throw Object.assign(new Error('connection reset'), { code: 'ECONNRESET' });
          }
          return scriptedTeam(owner, request);
        },
      }),
    });
    expect(end.state).toBe('done');
    expect(status.failures).toHaveLength(2);
    expect(status.tasks[0]?.champion).toBe(1);
  });

  it('closes an attempt whose endpoint could not be opened', async () => {
    const world = scriptedWorld();
    const serve: RunWorld['serve'] = async (target, store) => {
      const opened = await world.serve(target, store);
      let refusals = 1;
      const open: typeof opened.endpoints.open = (owner) =>
        refusals-- > 0 ? Promise.reject(new Error('no token')) : opened.endpoints.open(owner);
      return { ...opened, endpoints: { open } };
    };
    const { end, status } = await runCycle({ stages: ['search'], world: { ...world, serve } });
    expect(end.state).toBe('done');
    expect(status.failures).toEqual([expect.stringContaining('infrastructure: no token')]);
  });

  it('counts what pruning would free, then frees it and keeps the evidence', async () => {
    let failures = 1;
    const answer: typeof scriptedTeam = (owner, request) => {
      const wrote = request.messages.some((message) => message.role === 'tool');
      if (owner.startsWith('attempt:') && wrote && failures-- > 0) throw new Error('lost');
      return scriptedTeam(owner, request);
    };
    await runCycle({ stages: ['search'], world: scriptedWorld({ answer }) });
    const engine = await createEngine({
      dataFolder: folder,
      version: 'test',
      logger: silentLogger,
      world: scriptedWorld(),
    });
    const prune = (dryRun: boolean) => engine.handlers['experiment.prune']({ name: 'cycle', dryRun }, context);
    const planned = await prune(true);
    expect(planned).toMatchObject({ attempts: 1, kept: 12 });
    expect(planned.bytes).toBeGreaterThan(0);
    expect(await prune(false)).toEqual(planned);
    expect(await prune(false)).toMatchObject({ attempts: 0, bytes: 0 });
    await engine.shutdown('now');
  });

  it('stops with a sentence when too few runs succeeded', async () => {
    const { end } = await runCycle({
      config: {
        executor: { turnTokens: 1000, contextSafety: 100, orchestratorTurns: 1 },
        search: { updates: 0, callTokens: 4000, requireProvenWin: false },
      },
    });
    expect(end.state).toBe('failed');
    expect(end.message).toMatch(/successful runs and the selection needs 3/);
  });

  it('refuses a changed configuration with the difference, and a second run of the same experiment', async () => {
    const engine = await createEngine({
      dataFolder: folder,
      version: 'test',
      logger: silentLogger,
      world: scriptedWorld({ latencyMs: 20 }),
    });
    const config = scriptedConfig(library);
    await engine.handlers['experiment.create']({ name: 'cycle', config }, context);
    await expect(
      engine.handlers['experiment.create'](
        { name: 'cycle', config: { ...config, search: { ...config.search, updates: 3 } } },
        context,
      ),
    ).rejects.toMatchObject({ code: 'conflict', message: expect.stringContaining('search.updates: 2 -> 3') as string });
    await engine.handlers['run.start']({ name: 'cycle', stages: ['search'] }, context);
    await expect(engine.handlers['run.start']({ name: 'cycle', stages: ['search'] }, context)).rejects.toMatchObject({
      code: 'conflict',
    });
    const stopped = await engine.handlers['engine.stop']({ mode: 'now', shutdown: false }, context);
    expect(stopped.stopped).toBe(true);
    await engine.shutdown('now');
  });

  it('stops after the units in flight and goes on from there', async () => {
    const engine = await createEngine({
      dataFolder: folder,
      version: 'test',
      logger: silentLogger,
      world: scriptedWorld({ latencyMs: 10 }),
    });
    await engine.handlers['experiment.create']({ name: 'cycle', config: scriptedConfig(library) }, context);
    const { runId } = await engine.handlers['run.start']({ name: 'cycle', stages: allStages }, context);
    await new Promise((resolve) => setTimeout(resolve, 150));
    await engine.handlers['engine.stop']({ mode: 'after', shutdown: false }, context);
    expect((await engine.handlers['run.wait']({ runId }, context)).state).toBe('stopped');
    await engine.shutdown('now');
    const { end, status } = await runCycle();
    expect(end.state).toBe('done');
    expect(status.failures).toEqual([]);
  });
});
