import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { seededRandom } from '../../common/base/seeded-random.ts';
import { type LoadedModel, loadServedModel } from '../model/load.ts';
import type { GenerateRequest } from '../model/served-model.ts';
import { smolLm2Model } from '../testing/smollm2.ts';
import { tinyHybridModel } from '../testing/tiny-hybrid.ts';

const load = (path: string, contextSize: number, sequences: number): Promise<LoadedModel> =>
  loadServedModel(
    { path, sha256: '0', adapter: null, model: { id: 'm', contextSize, sequences, gpu: 'off', kvType: 'f16' } },
    { logger: silentLogger },
  );

const request = (promptIds: readonly number[], more: Partial<GenerateRequest> = {}): GenerateRequest => ({
  promptIds,
  temperature: 0.7,
  topP: 0.95,
  topK: 40,
  seed: 5,
  maxTokens: 24,
  ...more,
});

const randomIds = (count: number, seed: number): number[] => {
  const random = seededRandom(seed);
  return Array.from({ length: count }, () => 10 + Math.floor(random() * 300));
};

describe('scheduling', () => {
  let model: LoadedModel;
  beforeAll(async () => {
    model = await load(await tinyHybridModel(), 16_384, 2);
  });
  afterAll(() => model?.dispose());

  it('runs more requests than sequences, first come first served', async () => {
    const finished: number[] = [];
    const results = await Promise.all(
      [0, 1, 2, 3, 4, 5].map(async (i) => {
        const result = await model.generate(request(randomIds(40, i), { maxTokens: 12, stopIds: [], seed: i }));
        finished.push(i);
        return result;
      }),
    );
    expect(new Set(finished.slice(0, 2))).not.toContain(5);
    expect(finished.indexOf(5)).toBeGreaterThanOrEqual(4);
    expect(results[5]!.queueMs).toBeGreaterThan(results[0]!.queueMs);
    expect(model.metrics()).toMatchObject({ queued: 0, running: 0 });
  });

  it('runs the more urgent request first', async () => {
    const order: string[] = [];
    const run = async (name: string, priority: number, maxTokens = 8): Promise<void> => {
      await model.generate(
        request(randomIds(60, 9), {
          priority,
          maxTokens,
          stopIds: [],
          onTokens: () => void (order.at(-1) === name || order.push(name)),
        }),
      );
    };
    // One place becomes free before the other: in one batch, who is told first would say nothing about urgency.
    const busy = [run('first', 0, 96), run('second', 0)];
    await Promise.all([...busy, run('later', 2), run('later still', 2), run('urgent', 1)]);
    expect(order.indexOf('urgent')).toBeLessThan(order.indexOf('later'));
  });

  it('decodes while another prompt is being read, and cancels that prompt between two slices', async () => {
    const abort = new AbortController();
    const long = model.generate(request(randomIds(16_000, 1), { signal: abort.signal }));
    const cancelled = expect(long).rejects.toMatchObject({ code: 'cancelled' });
    let tokens = 0;
    const short = await model.generate(
      request(randomIds(20, 2), {
        maxTokens: 10,
        onTokens: () => {
          if (++tokens === 5) abort.abort();
        },
      }),
    );
    await cancelled;
    expect(short.sampledIds.length).toBeGreaterThanOrEqual(1);
    // Not all of the long prompt was evaluated, and the sequence is free and sound.
    const again = await model.generate(request(randomIds(16_000, 1).slice(0, 600), { maxTokens: 2 }));
    expect(again.sampledIds.length).toBeGreaterThan(0);
    expect(model.metrics().running).toBe(0);
  });

  it('cancels while waiting, while decoding, and before the start', async () => {
    const busy = [1, 2].map((seed) => model.generate(request(randomIds(30, seed), { maxTokens: 400, seed })));
    const waiting = new AbortController();
    const queued = model.generate(request(randomIds(30, 3), { signal: waiting.signal }));
    expect(model.metrics().queued).toBe(1);
    waiting.abort();
    await expect(queued).rejects.toMatchObject({ code: 'cancelled' });
    expect(model.metrics().queued).toBe(0);
    await Promise.all(busy);

    const decoding = new AbortController();
    let seen = 0;
    const cut = model.generate(
      request(randomIds(30, 4), {
        maxTokens: 5000,
        signal: decoding.signal,
        grammar: { schema: { type: 'array', items: { type: 'integer' }, minItems: 900 }, afterId: null },
        onTokens: () => {
          if (++seen === 5) decoding.abort();
        },
      }),
    );
    await expect(cut).rejects.toMatchObject({ code: 'cancelled' });
    expect(seen).toBe(5);
    await expect(model.generate(request([10, 11], { signal: AbortSignal.abort() }))).rejects.toMatchObject({
      code: 'cancelled',
    });
  });

  it('refuses a prompt that fills the context, and ends a completion at the context by length', async () => {
    await expect(model.generate(request(randomIds(16_384, 1)))).rejects.toMatchObject({
      code: 'invalid_input',
      details: { reason: 'context_length_exceeded', promptTokens: 16_384, contextTokens: 16_384 },
    });
    await expect(model.generate(request([]))).rejects.toMatchObject({ code: 'invalid_input' });
    const full = await model.generate(
      request(randomIds(16_380, 2), {
        maxTokens: 100,
        grammar: { schema: { type: 'string', minLength: 50 }, afterId: null },
      }),
    );
    expect(full).toMatchObject({ finishReason: 'length' });
    expect(full.sampledIds).toHaveLength(4);
  });

  it('says when a resumed completion had ended already', async () => {
    const endId = model.info.endIds[0]!;
    const before = model.metrics().evaluatedTokens;
    const ended = await model.generate(request(randomIds(50, 3), { resumeIds: [20, 21, endId] }));
    expect(ended).toMatchObject({ sampledIds: [20, 21, endId], finishReason: 'stop' });
    const long = await model.generate(request(randomIds(50, 3), { resumeIds: [20, 21, 22], maxTokens: 3 }));
    expect(long).toMatchObject({ sampledIds: [20, 21, 22], finishReason: 'length' });
    expect(model.metrics().evaluatedTokens).toBe(before);
  });

  it('batches the sequences together', async () => {
    const before = model.metrics().batchSizes;
    const schema = { type: 'array', items: { type: 'integer' }, minItems: 900 };
    await Promise.all(
      [1, 2].map((seed) =>
        model.generate(request(randomIds(50, 60), { seed, maxTokens: 60, grammar: { schema, afterId: null } })),
      ),
    );
    const after = model.metrics().batchSizes;
    const grown = (size: number): number => (after[size] ?? 0) - (before[size] ?? 0);
    expect(grown(2)).toBeGreaterThan(50);
    expect(grown(1)).toBeLessThan(10);
  });

  it('fails what waits and runs when it is unloaded', async () => {
    const other = await load(await tinyHybridModel(), 1024, 1);
    const schema = { type: 'array', items: { type: 'integer' }, minItems: 900 };
    const running = [1, 2].map((seed) =>
      other.generate(request(randomIds(20, seed), { maxTokens: 900, grammar: { schema, afterId: null } })),
    );
    const outcomes = Promise.allSettled(running);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await other.dispose();
    for (const outcome of await outcomes)
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'cancelled' } });
    await expect(other.generate(request([10]))).rejects.toMatchObject({ code: 'cancelled' });
  });
});

describe('sampling with a real model', () => {
  let model: LoadedModel;
  const prompt = (text: string): number[] =>
    model.tokenize(`<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`, { special: true });
  const text = (ids: readonly number[]): string => model.detokenize(ids, { special: true });
  beforeAll(async () => {
    model = await load(await smolLm2Model(), 2048, 2);
  });
  afterAll(() => model?.dispose());

  it('repeats itself for a seed, differs between seeds, and is greedy at temperature 0', async () => {
    const ask = (seed: number, temperature = 1) =>
      model.generate(request(prompt('Write one sentence about the sea.'), { seed, temperature, maxTokens: 20 }));
    const first = await ask(1);
    expect((await ask(1)).sampledIds).toEqual(first.sampledIds);
    expect((await ask(2)).sampledIds).not.toEqual(first.sampledIds);
    expect((await ask(1, 0)).sampledIds).toEqual((await ask(2, 0)).sampledIds);
  });

  it('ends at a stop text that spans tokens, and tells which', async () => {
    const free = await model.generate(
      request(prompt('Count from one to ten in words.'), { temperature: 0, maxTokens: 30 }),
    );
    const written = text(free.sampledIds);
    const stop = written.slice(6, 13);
    const cut = await model.generate(
      request(prompt('Count from one to ten in words.'), { temperature: 0, maxTokens: 30, stopTexts: ['never', stop] }),
    );
    expect(cut).toMatchObject({ finishReason: 'stop', stopText: stop });
    expect(free.sampledIds.slice(0, cut.sampledIds.length)).toEqual(cut.sampledIds);
    expect(text(cut.sampledIds)).toContain(stop);
  });

  it('reports tokens as they come', async () => {
    const seen: number[] = [];
    const result = await model.generate(
      request(prompt('Say hello.'), { maxTokens: 10, onTokens: (ids) => void seen.push(...ids) }),
    );
    expect(seen).toEqual(result.sampledIds);
  });

  it('obeys a schema from the start', async () => {
    const schema = {
      type: 'object',
      properties: {
        winner: { enum: ['A', 'B', 'tie'] },
        reason: { type: 'string', maxLength: 60 },
        scores: { type: 'array', items: { type: 'integer', minimum: 0, maximum: 9 }, minItems: 2, maxItems: 2 },
      },
      required: ['winner', 'reason', 'scores'],
    };
    for (const seed of [1, 2, 3]) {
      const result = await model.generate(
        request(prompt('Which is better, tea or coffee?'), {
          seed,
          temperature: 1,
          maxTokens: 200,
          grammar: { schema, afterId: null },
        }),
      );
      expect(result.finishReason).toBe('stop');
      const value = JSON.parse(text(result.sampledIds.slice(0, -1)));
      expect(['A', 'B', 'tie']).toContain(value.winner);
      expect(value.reason.length).toBeLessThanOrEqual(60);
      expect(value.scores).toHaveLength(2);
    }
  });

  it('obeys a schema only after the given id, also when resumed in the middle of the value', async () => {
    const [afterId] = model.tokenize('<|im_start|>', { special: true });
    const schema = {
      type: 'object',
      properties: { kind: { enum: ['alpha', 'beta'] }, n: { type: 'integer' } },
      required: ['kind', 'n'],
    };
    const grammar = { schema, afterId: afterId! };
    const free = await model.generate(request(prompt('Say hello.'), { maxTokens: 8, grammar, temperature: 0 }));
    expect(() => JSON.parse(text(free.sampledIds))).toThrow();

    const begun = [
      ...model.tokenize('Let me think.', { special: false }),
      afterId!,
      ...model.tokenize('{"kind": "al', { special: false }),
    ];
    const result = await model.generate(request(prompt('Say hello.'), { maxTokens: 80, resumeIds: begun, grammar }));
    const json = text(result.sampledIds)
      .split('<|im_start|>')[1]!
      .replace(/<\|[a-z_]+\|>$/, '');
    expect(JSON.parse(json)).toMatchObject({ kind: 'alpha' });
  });

  it('refuses a schema it cannot enforce before anything is sampled', async () => {
    const schema = { type: 'string', pattern: 'x' };
    await expect(model.checkSchema(schema)).rejects.toMatchObject({
      code: 'invalid_input',
      details: { keyword: 'pattern' },
    });
    await expect(model.generate(request(prompt('x'), { grammar: { schema, afterId: null } }))).rejects.toMatchObject({
      code: 'invalid_input',
    });
    await model.checkSchema({ type: 'object' });
  });

  it('keeps the conversation it continues, and counts what it reused', async () => {
    const first = await model.generate(request(prompt('Tell me about rivers.'), { affinity: 'talk', maxTokens: 30 }));
    const next = [
      ...prompt('Tell me about rivers.'),
      ...first.sampledIds,
      ...model.tokenize('\nMore.', { special: false }),
    ];
    const second = await model.generate(request(next, { affinity: 'talk' }));
    expect(second.cachedTokens).toBe(prompt('Tell me about rivers.').length + first.sampledIds.length - 1);
    expect(second.cachedTokens + second.evaluatedTokens).toBe(next.length);
  });
});
