import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../common/base/logger.ts';
import type { ExperimentConfigInput } from '../common/domain/config.ts';
import type { StageName } from '../common/domain/events.ts';
import { createEngine, type Engine } from './engine.ts';
import { openStore } from './store/store.ts';
import { findingsConfig, teamWithFindings } from './testing/scripted-findings.ts';
import { registerScriptedModel, scriptedWorld, writeTaskLibrary } from './testing/scripted-world.ts';

let folder: string;
let library: string;
let engine: Engine | null = null;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-integrity-'));
  library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-tasks-')));
  const store = openStore(folder);
  registerScriptedModel(store);
  store.close();
});
afterEach(async () => {
  await engine?.shutdown('now');
  engine = null;
  rmSync(folder, { recursive: true });
  rmSync(library, { recursive: true });
});

const context = { signal: new AbortController().signal, progress: () => undefined };
const cycle: StageName[] = ['search', 'collect', 'rank', 'select'];

/** A cycle whose named runs have one finding each. Run 4 ranks first, run 1 last. */
async function open(bad: Record<string, number[]>, config: Partial<ExperimentConfigInput> = {}) {
  const world = scriptedWorld({ answer: teamWithFindings(bad) });
  const opened = await createEngine({ dataFolder: folder, version: 'test', logger: silentLogger, world });
  engine = opened;
  const { handlers } = opened;
  await handlers['experiment.create']({ name: 'x', config: { ...findingsConfig(library), ...config } }, context);
  const status = () => handlers['experiment.status']({ name: 'x' }, context);
  return {
    run: async (stages: StageName[] = cycle) => {
      const { runId } = await handlers['run.start']({ name: 'x', stages }, context);
      return handlers['run.wait']({ runId }, context);
    },
    status,
    /** "run: decision", best first */
    cut: async (task: string) =>
      (await status()).tasks
        .find((row) => row.taskId === task)
        ?.ratings.map((row) => `${row.run}: ${row.decision ?? row.standing}`),
    findings: () => handlers['findings.list']({ name: 'x' }, context),
    decide: (findings: string[], decision: 'cleared' | 'upheld', note = 'looked') =>
      handlers['findings.decide']({ name: 'x', findings, decision, note }, context),
    gates: async () => (await handlers['gates.list']({ name: 'x' }, context)).map(({ kind, state }) => [kind, state]),
    gate: (decision: 'approved' | 'rejected', note = '') =>
      handlers['gates.decide']({ name: 'x', decision, note }, context),
    events: async () =>
      (await handlers['events.since']({ after: 0, limit: 1000, experiment: 'x' }, context)).map(({ event }) => event),
  };
}

describe('a run with a finding', () => {
  it('waits at a gate before the cut, and approving goes on without it: the next ranks move up', async () => {
    const lab = await open({ one: [4] });
    const end = await lab.run();
    expect(end).toMatchObject({ state: 'gated', error: { code: 'gate' } });
    expect(end.message).toBe(
      '1 run of "one" would be selected but for 1 undecided finding: look with "mass findings x" and clear or uphold them, ' +
        'or approve to go on without those runs. Go on with: mass approve x on-findings',
    );
    const status = await lab.status();
    expect(status.stages.map(({ stage, state }) => [stage, state])).toContainEqual(['select', 'gated']);
    expect([status.findings, status.gates.map(({ kind }) => kind)]).toEqual([
      { open: 1, cleared: 0, upheld: 0 },
      ['on-findings'],
    ]);
    expect(await lab.findings()).toMatchObject([
      {
        taskId: 'one',
        run: 4,
        check: 'deliverables.placeholder',
        severity: 'doubtful',
        message: 'report.md holds a placeholder, "TODO" in line 5.',
        state: 'open',
        selected: false,
      },
    ]);

    expect(await lab.gate('approved', 'the rest is enough')).toMatchObject({ kind: 'on-findings', state: 'approved' });
    expect(await lab.run()).toMatchObject({ state: 'done' });
    expect(await lab.cut('one')).toEqual(['4: waiting', '3: train', '2: train', '1: validate']);
    expect(await lab.cut('two')).toEqual(['4: train', '3: train', '2: validate', '1: drop']);
    const made = (await lab.events()).find((event) => event.type === 'selection.made' && event.taskId === 'one');
    expect(made).toMatchObject({ leftOut: [{ rank: 1, standing: 'waiting' }] });
  });

  it('comes back when it is cleared before the cut, which needs no approval then', async () => {
    const lab = await open({ one: [4] });
    await lab.run();
    const [finding] = await lab.findings();
    const id = finding?.findingId ?? '';
    await expect(lab.decide([id], 'cleared', ' ')).rejects.toMatchObject({ code: 'usage' });
    await expect(lab.decide(['fi_none'], 'cleared')).rejects.toMatchObject({ code: 'not_found' });
    expect(await lab.decide([id], 'cleared', 'a word of the text')).toMatchObject([
      { state: 'cleared', note: 'a word of the text', selected: false },
    ]);
    expect(await lab.run(['select'])).toMatchObject({ state: 'done' });
    expect(await lab.cut('one')).toEqual(['4: train', '3: train', '2: validate', '1: drop']);
    expect(await lab.gates()).toEqual([['on-findings', 'lifted']]);
  });

  it('stays out when it is upheld, and what is decided after the cut changes nothing', async () => {
    const lab = await open({ one: [3] });
    await lab.run();
    const [finding] = await lab.findings();
    const id = finding?.findingId ?? '';
    await lab.decide([id], 'upheld', '');
    await lab.run(['select']);
    const cut = ['4: train', '3: upheld', '2: train', '1: validate'];
    expect(await lab.cut('one')).toEqual(cut);
    expect(await lab.decide([id], 'cleared')).toMatchObject([{ state: 'cleared', selected: true }]);
    await lab.run(['select']);
    expect(await lab.cut('one')).toEqual(cut.map((row) => row.replace('upheld', 'free')));
    expect((await lab.events()).filter((event) => event.type === 'selection.made')).toHaveLength(2);
  });

  it('stops nobody below the cut', async () => {
    const lab = await open({ one: [1], two: [1] });
    expect(await lab.run()).toMatchObject({ state: 'done' });
    expect(await lab.cut('one')).toEqual(['4: train', '3: train', '2: validate', '1: waiting']);
    expect(await lab.gates()).toEqual([]);
  });

  it('is selected like any other when the configuration says so, and shown all the same', async () => {
    const lab = await open({ one: [4] }, { integrity: { quarantine: false } });
    expect(await lab.run()).toMatchObject({ state: 'done' });
    expect(await lab.cut('one')).toEqual(['4: train', '3: train', '2: validate', '1: drop']);
    const { findings, notices } = await lab.status();
    expect(findings.open).toBe(1);
    expect(notices).toContain('integrity.quarantine is false: runs with findings are selected like any other.');
  });
});

describe('a short pool', () => {
  it('stops the selection with the number that is missing, until findings are cleared', async () => {
    const lab = await open({ one: [2, 4] }, { gates: { onFindings: false } });
    const end = await lab.run();
    expect(end.state).toBe('gated');
    expect(end.message).toMatch(
      /^The selection is short: "one" lacks 1 run of 3 \(left out: 2 wait for a decision\)\. /,
    );
    expect(await lab.cut('two')).toEqual(['4: free', '3: free', '2: free', '1: free']);
    await expect(lab.gate('approved')).rejects.toMatchObject({ code: 'conflict' });

    const [second, fourth] = (await lab.findings()).map((finding) => finding.findingId);
    await lab.decide([fourth ?? ''], 'upheld');
    expect((await lab.run(['select'])).message).toContain('(left out: 1 wait for a decision, 1 upheld)');
    expect(await lab.gates()).toEqual([
      ['short-pool', 'lifted'],
      ['short-pool', 'open'],
    ]);
    await lab.decide([second ?? ''], 'cleared');
    expect(await lab.run(['select'])).toMatchObject({ state: 'done' });
    expect(await lab.cut('one')).toEqual(['4: upheld', '3: train', '2: train', '1: validate']);
    expect(await lab.gates()).toEqual([
      ['short-pool', 'lifted'],
      ['short-pool', 'lifted'],
    ]);
  });
});

describe('a gate', () => {
  it('that was rejected ends every later run with the reason, until it is approved', async () => {
    const lab = await open({ one: [4] });
    await lab.run();
    await lab.gate('rejected', 'look again');
    expect(await lab.run(['select'])).toMatchObject({
      state: 'gated',
      message: 'A person rejected the gate on-findings ("look again"); to go on after all: mass approve x on-findings',
    });
    await expect(lab.gate('approved')).rejects.toMatchObject({ code: 'not_found' });
    await engine?.handlers['gates.decide']({ name: 'x', gate: 'on-findings', decision: 'approved', note: '' }, context);
    expect(await lab.run(['select'])).toMatchObject({ state: 'done' });
  });
});

describe('the record', () => {
  it('holds one check of every collected run, none twice, and folds to the tables', async () => {
    const lab = await open({ one: [4], two: [4] });
    await lab.run();
    await lab.run();
    const checked = (await lab.events()).filter((event) => event.type === 'episode.checked');
    expect(checked).toHaveLength(8);
    const [finding] = await lab.findings();
    await lab.decide([finding?.findingId ?? ''], 'cleared');
    await lab.run(['select']);
    await lab.gate('approved');
    await lab.run(['select']);
    await engine?.shutdown('now');
    engine = null;

    const store = openStore(folder);
    const other = mkdtempSync(join(tmpdir(), 'mass-fold-'));
    const copy = openStore(other);
    copy.replay(store.eventsSince(0, 100_000));
    expect(copy.dump()).toEqual(store.dump());
    expect(store.dump()['findings']).toHaveLength(2);
    copy.close();
    store.close();
    rmSync(other, { recursive: true });
  });
});
