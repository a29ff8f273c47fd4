import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  collectSeed,
  EXTERNAL_JUDGE_SEEDS,
  fnv1a,
  matchSeed,
  orderSeed,
  proposerSeed,
  referenceEpisodeSeed,
  rolloutSeed,
  scheduleSeed,
  searchEpisodeSeed,
  searchJudgeSeed,
  seedBaseOfCycle,
  turnSeed,
} from './seeds.ts';

describe('seed formulas', () => {
  const search = { seedBase: 450_000, taskNumber: 51 };

  it('gives the worked values of the method', () => {
    expect(searchEpisodeSeed({ ...search, version: 0 })).toBe(450_051);
    expect(searchEpisodeSeed({ ...search, version: 11 })).toBe(461_051);
    expect(referenceEpisodeSeed(search)).toBe(450_051);
    expect(searchJudgeSeed(search)).toBe(450_051);
    expect(proposerSeed({ seedBase: 1_450_000, taskNumber: 324 })).toBe(1_450_324);
    expect(collectSeed({ seedBase: 710_000, taskNumber: 202, run: 17 })).toBe(730_217);
    expect(collectSeed({ seedBase: 1_710_000, taskNumber: 202, run: 0 })).toBe(1_730_200);
    expect(scheduleSeed({ seed: 1234, taskNumber: 56 })).toBe(1290);
    expect(orderSeed({ seed: 1234, taskNumber: 56 })).toBe(1291);
    expect(matchSeed({ seed: 1234, taskNumber: 56, index: 53 })).toBe(57_287);
    expect(rolloutSeed({ taskNumber: 305, run: 2 })).toBe(940_502);
    expect(EXTERNAL_JUDGE_SEEDS).toEqual([42, 43, 44]);
  });

  it('takes the base of a cycle, and refuses a cycle without one', () => {
    expect(seedBaseOfCycle([450_000, 1_450_000], 1)).toBe(450_000);
    expect(seedBaseOfCycle([450_000, 1_450_000], 2)).toBe(1_450_000);
    expect(() => seedBaseOfCycle([450_000, 1_450_000], 3)).toThrow(/from 1 to 2/);
    expect(() => seedBaseOfCycle([450_000, 1_450_000], 0)).toThrow(/from 1 to 2/);
  });
});

describe('turn seeds', () => {
  it('hashes with FNV-1a (published vectors)', () => {
    expect(fnv1a('')).toBe(0x811c9dc5);
    expect(fnv1a('a')).toBe(0xe40c292c);
    expect(fnv1a('foobar')).toBe(0xbf9cf968);
  });

  it('keeps the episode’s seed under the reference’s policy', () => {
    expect(turnSeed({ episodeSeed: 450_051, thread: 'orchestrator', turn: 9, policy: 'episode' })).toBe(450_051);
  });

  it('is stable across releases: recorded runs must replay', () => {
    // FNV-1a of the text [450051,"orchestrator",0], halved
    expect(turnSeed({ episodeSeed: 450_051, thread: 'orchestrator', turn: 0, policy: 'turn' })).toBe(1_743_759_192);
    expect(turnSeed({ episodeSeed: 450_051, thread: 'orchestrator', turn: 1, policy: 'turn' })).toBe(166_641_042);
  });

  it('differs by episode, thread and turn, and stays in 31 bits', () => {
    const seen = new Set<number>();
    for (let episodeSeed = 0; episodeSeed < 20; episodeSeed++)
      for (const thread of ['orchestrator', 'worker-1', 'worker-2'])
        for (let turn = 0; turn < 50; turn++) seen.add(turnSeed({ episodeSeed, thread, turn, policy: 'turn' }));
    expect(seen.size).toBe(20 * 3 * 50);
    fc.assert(
      fc.property(fc.maxSafeInteger(), fc.string({ unit: 'binary' }), fc.nat(), (episodeSeed, thread, turn) => {
        const seed = turnSeed({ episodeSeed, thread, turn, policy: 'turn' });
        return Number.isInteger(seed) && seed >= 0 && seed < 2 ** 31;
      }),
    );
  });
});
