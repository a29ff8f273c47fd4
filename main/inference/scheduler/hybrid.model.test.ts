import { getLlama, type Llama, type LlamaContext, LlamaLogLevel, type Token } from 'node-llama-cpp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { seededRandom } from '../../common/base/seeded-random.ts';
import { type LoadedModel, loadServedModel } from '../model/load.ts';
import type { GenerateRequest } from '../model/served-model.ts';
import { tinyHybridModel } from '../testing/tiny-hybrid.ts';

/**
 * The state of a sequence that was branched, rewound, shared or resumed must be the state of one that never did anything
 * else. Compared is the whole next-token distribution, against a fresh sequence of a context of its own, evaluated at once.
 */
const TOLERANCE = 1e-3;
const FIRST_ID = 10;
const IDS = 300;

let served: LoadedModel;
let llama: Llama;
let reference: LlamaContext;

beforeAll(async () => {
  const path = await tinyHybridModel();
  const model = { id: 'tiny', contextSize: 2048, sequences: 3, gpu: 'off', kvType: 'f16' } as const;
  served = await loadServedModel({ model, path, sha256: '0', adapter: null }, { logger: silentLogger });
  llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error });
  const plain = await llama.loadModel({ modelPath: path });
  reference = await plain.createContext({ contextSize: 2048, sequences: 1, batchSize: 2048, threads: 1 });
});

afterAll(async () => {
  await served?.dispose();
  await llama?.dispose();
});

function randomIds(count: number, seed: number): number[] {
  const random = seededRandom(seed);
  return Array.from({ length: count }, () => FIRST_ID + Math.floor(random() * IDS));
}

/** One at a time: the reference has a single sequence, so that its batches are never shared. */
let queue: Promise<unknown> = Promise.resolve();

function fresh(ids: readonly number[]): Promise<ReadonlyMap<number, number>> {
  const result = queue.then(() => evaluateFresh(ids));
  queue = result.catch(() => undefined);
  return result;
}

async function evaluateFresh(ids: readonly number[]): Promise<ReadonlyMap<number, number>> {
  const sequence = reference.getSequence();
  try {
    await sequence.evaluateWithoutGeneratingNewTokens(ids.slice(0, -1) as Token[]);
    // The last id alone, as in serving: flash attention rounds a single query otherwise than a block of them.
    const generateNext = { probabilities: true, options: { temperature: 1, topK: 0, topP: 1 } };
    const output = await sequence.controlledEvaluate([[ids.at(-1) as Token, { generateNext }]]);
    return output[0]!.next.probabilities!;
  } finally {
    await sequence.dispose();
  }
}

function l1(a: ReadonlyMap<number, number>, b: ReadonlyMap<number, number>): number {
  let sum = 0;
  for (const id of new Set([...a.keys(), ...b.keys()])) sum += Math.abs((a.get(id) ?? 0) - (b.get(id) ?? 0));
  return sum;
}

const request = (promptIds: readonly number[], more: Partial<GenerateRequest> = {}): GenerateRequest => ({
  promptIds,
  temperature: 0.8,
  topP: 0.95,
  topK: 40,
  seed: 1,
  maxTokens: 16,
  ...more,
});

async function expectFresh(ids: readonly number[], more: Partial<GenerateRequest> = {}): Promise<void> {
  const distance = l1(await served.nextTokenProbabilities(request(ids, more)), await fresh(ids));
  expect(distance).toBeLessThan(TOLERANCE);
}

describe('state of a hybrid model', () => {
  it('is recognised as hybrid, and its distribution depends on tokens far back', async () => {
    expect(served.info.hybrid).toBe(true);
    const ids = randomIds(400, 1);
    const changed = ids.with(5, FIRST_ID + ((ids[5]! - FIRST_ID + 1) % IDS));
    // Otherwise the comparisons below would pass with any state.
    expect(l1(await fresh(ids), await fresh(changed))).toBeGreaterThan(10 * TOLERANCE);
  });

  it('branches at a fork point without evaluating the shared part again', async () => {
    const shared = randomIds(300, 2);
    const fork = { forkPoints: [shared.length], affinity: 'fork' };
    for (const seed of [3, 4, 5]) {
      const ids = [...shared, ...randomIds(60 + seed, seed)];
      await expectFresh(ids, fork);
      const result = await served.generate(request(ids, fork));
      expect(result.cachedTokens).toBeGreaterThanOrEqual(shared.length);
    }
  });

  it('continues its own answer without evaluating anything of it again', async () => {
    const prompt = randomIds(200, 6);
    const first = await served.generate(request(prompt, { affinity: 'grow', maxTokens: 20 }));
    const longer = [...prompt, ...first.sampledIds, ...randomIds(40, 7)];
    const second = await served.generate(request(longer, { affinity: 'grow' }));
    // The last sampled token was never evaluated.
    expect(second.cachedTokens).toBe(prompt.length + first.sampledIds.length - 1);
    await expectFresh([...longer, ...second.sampledIds], { affinity: 'grow' });
  });

  it('rewinds to before an answer that the next prompt rewrites', async () => {
    const endId = served.info.endIds.at(-1)!;
    const history = [...randomIds(250, 8), endId, ...randomIds(6, 9)];
    await served.generate(request(history, { affinity: 'rewrite', maxTokens: 30 }));
    const rewritten = [...history.slice(0, -2), ...randomIds(50, 10)];
    const again = await served.generate(request(rewritten, { affinity: 'rewrite' }));
    expect(again.cachedTokens).toBe(251); // the end of the last turn
    await expectFresh([...rewritten.slice(0, -10), ...randomIds(5, 11)], { affinity: 'rewrite' });
  });

  it('is exact while other sequences prefill and decode in the same batches', async () => {
    const prompts = [20, 21, 22].map((seed) => randomIds(100 + seed * 20, seed));
    const results = await Promise.all(prompts.map((ids) => served.generate(request(ids, { maxTokens: 40 }))));
    for (const [i, prompt] of prompts.entries())
      await expectFresh([...prompt, ...results[i]!.sampledIds, ...randomIds(3, 90 + i)]);
  });

  it('resumes from recorded ids as if it had sampled them', async () => {
    const prompt = randomIds(150, 30);
    const recorded = randomIds(25, 31);
    const result = await served.generate(request(prompt, { resumeIds: recorded, maxTokens: 40 }));
    expect(result.sampledIds.slice(0, recorded.length)).toEqual(recorded);
    expect(result.cachedTokens + result.evaluatedTokens).toBe(prompt.length);
    await expectFresh([...prompt, ...result.sampledIds]);
  });

  it('stays exact under random interleavings of branches, rewinds, aborts and long prompts', async () => {
    const random = seededRandom(77);
    const roots = [40, 41, 42, 43].map((seed) => randomIds(120, seed));
    const step = async (i: number): Promise<void> => {
      const root = roots[Math.floor(random() * roots.length)]!;
      const depth = 1 + Math.floor(random() * 3);
      const ids = [...root];
      for (let d = 0; d < depth; d++) ids.push(...randomIds(30, 100 + Math.floor(random() * 3) + 10 * d));
      const more = { forkPoints: [root.length], affinity: `thread ${Math.floor(random() * 5)}` };
      if (random() < 0.2) {
        const abort = new AbortController();
        const aborted = served.generate(request([...ids, ...randomIds(700, i)], { ...more, signal: abort.signal }));
        setTimeout(() => abort.abort(), 5);
        await aborted.catch((error: unknown) => expect(error).toMatchObject({ code: 'cancelled' }));
      } else if (random() < 0.5) await served.generate(request(ids, { ...more, seed: i }));
      else await expectFresh(ids, more);
    };
    for (let round = 0; round < 8; round++)
      await Promise.all(Array.from({ length: 5 }, (_, lane) => step(round * 5 + lane)));
    expect(served.metrics().checkpointBytes).toBeLessThanOrEqual(served.plan.parts.checkpoints);
  });
});
