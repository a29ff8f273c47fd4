import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { MassError } from '../../common/base/errors.ts';
import type { Sampling } from '../../common/domain/chat.ts';
import type { CompletionRecord, LoadOrder } from '../../common/protocol/inference.ts';
import { planModel } from './ask-inference.ts';
import type { CompletionRequest } from './endpoint.ts';
import { InferenceChild } from './inference-child.ts';
import { type InferenceOptions, startInference } from './inference-process.ts';
import { createLocalEndpoints } from './local-endpoint.ts';

const entry = new URL('../../inference/testing/scripted-main.ts', import.meta.url).pathname;
const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

const orderOf = (behaviour: string): LoadOrder => ({
  model: { id: 'scripted', contextSize: 4000, sequences: 4, gpu: 'off', kvType: 'f16' },
  path: `/nowhere/${behaviour}.gguf`,
  sha256: 'a'.repeat(64),
  adapter: null,
});

const restarts = { crashes: 5, windowMs: 60_000, backoffMs: 5 };
const logged: string[] = [];

function optionsOf(behaviour: string, more: Partial<InferenceOptions> = {}): InferenceOptions {
  return {
    order: orderOf(behaviour),
    onRecord: () => Promise.resolve(),
    logger: { log: (_level, message) => void logged.push(message) },
    entry,
    restarts,
    ...more,
  };
}

async function start(behaviour: string, more: Partial<InferenceOptions> = {}) {
  const records: CompletionRecord[] = [];
  const onRecord = async (record: CompletionRecord) => {
    await more.onRecord?.(record);
    records.push(record);
  };
  const inference = await startInference(optionsOf(behaviour, { ...more, onRecord }));
  const endpoints = createLocalEndpoints(inference);
  cleanups.push(async () => {
    await endpoints.dispose();
    await inference.dispose();
  });
  return { inference, endpoints, records };
}

const sampling: Sampling = { temperature: 0.6, topP: 0.95, topK: 20, seed: 1, maxTokens: 1000, thinking: true };
const ask = (text: string, more: Partial<CompletionRequest> = {}): CompletionRequest => ({
  messages: [{ role: 'user', content: text }],
  sampling,
  thread: 'main',
  ...more,
});

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

/** What an uninterrupted process samples for `long 40`: the scripted model is a function of the prompt. */
const longText = Array.from({ length: 40 }, (_, i) => `${7 + i} wörd`).join(' ');
const longIds = [...Buffer.from(longText), 257];

describe('local endpoint', () => {
  it('completes, counts and records for its owner', async () => {
    const { endpoints, records } = await start('plain');
    const endpoint = await endpoints.open('attempt 1');
    expect(endpoint.contextTokens).toBe(4000);
    expect(await endpoint.countTokens('héllo')).toBe(6);
    const completion = await endpoint.complete(ask('hi', { thread: 't' }));
    expect(completion).toMatchObject({
      message: { role: 'assistant', content: '[HI]' },
      finishReason: 'stop',
      usage: { promptTokens: 20, cachedTokens: 0, evaluatedTokens: 20, completionTokens: 5 },
    });
    expect(records).toMatchObject([
      { completionId: completion.completionId, owner: 'attempt 1', thread: 't', sampling, resumedAt: [] },
    ]);
    await endpoint.close();
    const refused = (await endpoint.complete(ask('hi')).catch((error) => error)) as MassError;
    expect(refused).toMatchObject({ code: 'infrastructure', details: { status: 401 } });
  });

  it('maps a context overflow with both numbers, and aborts', async () => {
    const { endpoints, records } = await start('slow-5');
    const endpoint = await endpoints.open('a');
    await expect(endpoint.complete(ask('x'.repeat(5000)))).rejects.toMatchObject({
      code: 'invalid_input',
      details: { reason: 'context_length_exceeded', promptTokens: 5018, contextTokens: 4000 },
    });
    const abort = new AbortController();
    const asked = endpoint.complete(ask('long 40', { signal: abort.signal }));
    setTimeout(() => abort.abort(), 50);
    await expect(asked).rejects.toMatchObject({ code: 'cancelled' });
    await expect(endpoint.complete(ask('y', { signal: abort.signal }))).rejects.toMatchObject({ code: 'cancelled' });
    expect(records).toEqual([]);
  });

  it('fails a completion that could not be recorded', async () => {
    const { endpoints } = await start('plain', { onRecord: () => Promise.reject(new Error('disk full')) });
    const endpoint = await endpoints.open('a');
    await expect(endpoint.complete(ask('hi'))).rejects.toMatchObject({
      code: 'infrastructure',
      message: expect.stringContaining('disk full'),
    });
  });
});

describe('crashes', () => {
  it('go unnoticed: the answer is the uninterrupted one, recorded once, also after several kills', async () => {
    const { inference, endpoints, records } = await start('slow-2');
    const endpoint = await endpoints.open('a');
    const asked = endpoint.complete(ask('long 40'));
    for (let kill = 0; kill < 2; kill++) {
      const { incarnation } = await inference.serving();
      await new Promise((resolve) => setTimeout(resolve, 250));
      process.kill(inference.pid, 'SIGKILL');
      await vi.waitFor(
        async () => expect((await inference.serving()).incarnation).toBeGreaterThan(incarnation),
        10_000,
      );
    }
    const completion = await asked;
    expect(completion.message.content).toBe(longText);
    expect(records.map((record) => record.sampledIds)).toEqual([longIds]);
    const [first = 0, second = 0] = records[0]?.resumedAt ?? [];
    expect(first).toBeGreaterThan(0);
    expect(second).toBeGreaterThan(first);
  });

  it('lose and repeat nothing at random moments (property)', async () => {
    const { inference, endpoints, records } = await start('slow-1', { restarts: { ...restarts, crashes: 1000 } });
    const endpoint = await endpoints.open('a');
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 700 }), fc.integer({ min: 1, max: 3 }), async (afterMs, parallel) => {
        records.length = 0;
        const asked = Array.from({ length: parallel }, (_, i) =>
          endpoint.complete(ask('long 40', { thread: `t${i}` })),
        );
        await new Promise((resolve) => setTimeout(resolve, afterMs));
        process.kill(inference.pid, 'SIGKILL');
        const completions = await Promise.all(asked);
        expect(completions.map((completion) => completion.message.content)).toEqual(asked.map(() => longText));
        expect(records.map((record) => record.sampledIds)).toEqual(asked.map(() => longIds));
        expect(new Set(records.map((record) => record.requestId)).size).toBe(parallel);
      }),
      { numRuns: 8 },
    );
  }, 60_000);

  it('between the record and the answer give the recorded completion', async () => {
    const started = await start('plain', {
      // The moment between commit and acknowledgement: stored, and nobody will hear of it.
      onRecord: async () => {
        if (started.records.length === 0) process.kill(started.inference.pid, 'SIGKILL');
        await new Promise((resolve) => setTimeout(resolve, 100));
      },
    });
    const endpoint = await started.endpoints.open('a');
    const completion = await endpoint.complete(ask('hi'));
    expect(completion.message.content).toBe('[HI]');
    expect(started.records.map((record) => record.completionId)).toEqual([completion.completionId]);
  });

  it('leave no ledger behind: a later turn is still spliced', async () => {
    const { inference, endpoints, records } = await start('plain');
    const endpoint = await endpoints.open('a');
    const first = await endpoint.complete(ask('one'));
    process.kill(inference.pid, 'SIGKILL');
    const messages = [
      { role: 'user', content: 'one' } as const,
      first.message,
      { role: 'user', content: 'two' } as const,
    ];
    expect((await endpoint.complete(ask('', { messages }))).message.content).toBe('[TWO]');
    expect(records.map((record) => record.ledgerMisses)).toEqual([0, 0]);
    // A new process remembers no earlier prompt, so this one is recorded whole.
    expect(records[1]).toMatchObject({ parentCompletionId: null, parentPrefix: 0 });
  });

  it('of the silent kind are noticed: a process that hangs is replaced, and its request goes on', async () => {
    const marker = join(mkdtempSync(join(tmpdir(), 'mass-hang-')), 'hung');
    const { inference, endpoints, records } = await start('plain', { stallMs: 3000 });
    const endpoint = await endpoints.open('a');
    const { incarnation } = await inference.serving();
    expect((await endpoint.complete(ask(`hang ${marker}`))).message.content).toBe(
      `[${`hang ${marker}`.toUpperCase()}]`,
    );
    expect((await inference.serving()).incarnation).toBe(incarnation + 1);
    expect(logged).toContain('The inference process makes no progress and is ended.');
    expect(records).toHaveLength(1);
    rmSync(dirname(marker), { recursive: true });
  });

  it('in a row end as an infrastructure failure that names signal and cause', async () => {
    const { endpoints } = await start('plain', { restarts: { ...restarts, crashes: 3 } });
    const endpoint = await endpoints.open('a');
    await expect(endpoint.complete(ask('die'))).rejects.toMatchObject({
      code: 'infrastructure',
      message: expect.stringMatching(/crashed 3 times within 1 minutes.*signal SIGKILL/),
    });
    await expect(endpoint.complete(ask('hi'))).rejects.toMatchObject({ code: 'infrastructure' });
  });
});

describe('starting and stopping', () => {
  it('leaves a process whose load failed ready for another one', async () => {
    const child = new InferenceChild({
      entry,
      socketPath: null,
      cpu: true,
      onMessage: () => undefined,
      onLog: () => undefined,
    });
    cleanups.push(() => child.stop(0));
    const outcome = () =>
      child.next(
        (message) => (message.kind === 'loaded' || message.kind === 'load-failed' ? message : undefined),
        'load',
        10_000,
      );
    const load = async (behaviour: string) => {
      const loaded = outcome();
      child.send({ kind: 'load', order: orderOf(behaviour) });
      return await loaded;
    };
    await child.next((message) => (message.kind === 'ready' ? true : undefined), 'start', 10_000);
    expect(await load('fail-on-load')).toMatchObject({ kind: 'load-failed' });
    expect(await load('plain')).toMatchObject({ kind: 'loaded' });
    expect(await load('plain')).toMatchObject({ kind: 'load-failed', error: { code: 'conflict' } });
  });

  it('does not try a model again that cannot be loaded', async () => {
    await expect(startInference(optionsOf('fail-on-load'))).rejects.toMatchObject({
      code: 'internal',
      message: 'this file is not a model',
    });
  });

  it('gives up on a process that crashes at every start, or does not load in time', async () => {
    const two = { ...restarts, crashes: 2 };
    await expect(startInference(optionsOf('crash-on-load', { restarts: two }))).rejects.toMatchObject({
      code: 'infrastructure',
      message: expect.stringContaining('signal SIGKILL'),
    });
    await expect(startInference(optionsOf('hang-on-load', { loadMs: 100 }))).rejects.toMatchObject({
      code: 'infrastructure',
      message: expect.stringContaining('did not load the model'),
    });
    const missing = optionsOf('plain', { entry: '/nowhere/main.ts', restarts: two });
    await expect(startInference(missing)).rejects.toMatchObject({ message: expect.stringContaining('exit code 1') });
  });

  it('plans without loading', async () => {
    expect(await planModel(optionsOf('plain'))).toMatchObject({ fits: true, contextSize: 4000 });
  });

  it('leaves no process behind, and ends what is in flight', async () => {
    const { inference, endpoints } = await start('slow-5');
    const endpoint = await endpoints.open('a');
    const { pid } = inference;
    expect(isAlive(pid)).toBe(true);
    const asked = endpoint.complete(ask('long 40')).catch((error) => error.code);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await inference.dispose();
    await inference.dispose();
    expect(isAlive(pid)).toBe(false);
    expect(await asked).toBe('cancelled');
    await expect(inference.serving()).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('leave no orphan when the engine is killed', async () => {
    const { fork } = await import('node:child_process');
    const parent = fork(new URL('./testing/orphan-parent.ts', import.meta.url).pathname, [entry], {
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    const pid = await new Promise<number>((resolve) => parent.once('message', (message) => resolve(Number(message))));
    expect(isAlive(pid)).toBe(true);
    parent.kill('SIGKILL');
    await vi.waitFor(() => expect(isAlive(pid)).toBe(false), 5000);
  });
});
