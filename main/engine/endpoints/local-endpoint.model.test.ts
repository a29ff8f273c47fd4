import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Message, Sampling, ToolDefinition } from '../../common/domain/chat.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { smolLm2Model } from '../../inference/testing/smollm2.ts';
import { sha256File } from '../../node/file-hash.ts';
import { type InferenceProcess, startInference } from './inference-process.ts';
import { createLocalEndpoints } from './local-endpoint.ts';

/** The whole way with the demo model: supervisor, process, HTTP, chat format, scheduler, real sampling. */
let inference: InferenceProcess;
let endpoints: ReturnType<typeof createLocalEndpoints>;
const records: CompletionRecord[] = [];

beforeAll(async () => {
  const path = await smolLm2Model();
  inference = await startInference({
    order: {
      model: { id: 'smollm2', contextSize: 4096, sequences: 2, gpu: 'off', kvType: 'f16' },
      path,
      sha256: await sha256File(path),
      adapter: null,
    },
    onRecord: (record) => Promise.resolve(void records.push(record)),
    logger: { log: () => undefined },
    restarts: { crashes: 5, windowMs: 60_000, backoffMs: 10 },
  });
  endpoints = createLocalEndpoints(inference);
}, 300_000);

afterAll(async () => {
  await endpoints?.dispose();
  await inference?.dispose();
});

const sampling: Sampling = { temperature: 0, topP: 1, topK: 20, seed: 1, maxTokens: 60, thinking: false };
const user = (content: string): Message => ({ role: 'user', content });

describe('the demo model', () => {
  it('reports what it runs on', () => {
    expect(inference.status).toMatchObject({ architecture: 'llama', contextSize: 4096, sequences: 2 });
    expect(inference.status.plan.fits).toBe(true);
  });

  it('continues a conversation from its cache, without rendering its own words again', async () => {
    const endpoint = await endpoints.open('chat');
    const messages = [user('What is the capital of France? Answer in one sentence.')];
    const first = await endpoint.complete({ messages, sampling, thread: 't' });
    expect(first.message.content.length).toBeGreaterThan(0);
    messages.push(first.message, user('And of Italy?'));
    const second = await endpoint.complete({ messages, sampling, thread: 't' });
    expect(second.usage.cachedTokens).toBeGreaterThanOrEqual(first.usage.promptTokens);
    const [one, two] = records.slice(-2);
    expect([one?.ledgerMisses, two?.ledgerMisses]).toEqual([0, 0]);
    expect(two?.parentCompletionId).toBe(one?.completionId);
    expect(two?.parentPrefix).toBeGreaterThanOrEqual((one?.usage.promptTokens ?? 0) + first.usage.completionTokens - 1);
  });

  it('calls a required tool by constrained JSON', async () => {
    const endpoint = await endpoints.open('tools');
    const tools: ToolDefinition[] = [
      {
        name: 'read_file',
        description: 'Reads a file.',
        parameters: {
          type: 'object',
          properties: { path: { type: 'string', maxLength: 40 } },
          required: ['path'],
          additionalProperties: false,
        },
      },
    ];
    const completion = await endpoint.complete({
      messages: [user('Read the file notes.txt.')],
      tools,
      toolChoice: 'required',
      sampling: { ...sampling, maxTokens: 200 },
      thread: 't',
    });
    expect(completion.finishReason).toBe('tool_calls');
    expect(completion.message.toolCalls?.[0]?.name).toBe('read_file');
    expect(JSON.parse(completion.message.toolCalls?.[0]?.arguments ?? '')).toEqual({ path: expect.any(String) });
  });

  it('honours a schema', async () => {
    const endpoint = await endpoints.open('schema');
    const completion = await endpoint.complete({
      messages: [user('Is water wet?')],
      responseSchema: {
        type: 'object',
        properties: { verdict: { enum: ['A', 'B', 'tie'] }, sure: { type: 'boolean' } },
        required: ['verdict', 'sure'],
        additionalProperties: false,
      },
      sampling,
      thread: 't',
    });
    const answer = JSON.parse(completion.message.content);
    expect(['A', 'B', 'tie']).toContain(answer.verdict);
    expect(typeof answer.sure).toBe('boolean');
  });

  it('goes on after kill -9 with the ids it had', async () => {
    const endpoint = await endpoints.open('kill');
    const request = {
      messages: [user('Write a long story about a lighthouse.')],
      sampling: { ...sampling, maxTokens: 150 },
      thread: 't',
    };
    await endpoint.complete(request);
    const decodeMs = records.at(-1)?.decodeMs ?? 0;
    const before = records.length;
    const asked = endpoint.complete({ ...request, thread: 'killed' });
    await new Promise((resolve) => setTimeout(resolve, decodeMs / 2));
    process.kill(inference.pid, 'SIGKILL');
    const completion = await asked;
    expect(records.length).toBe(before + 1);
    const record = records.at(-1);
    expect(record?.completionId).toBe(completion.completionId);
    expect(record?.resumedAt).toHaveLength(1);
    expect(record?.resumedAt[0]).toBeGreaterThan(0);
    expect(completion).toMatchObject({ finishReason: 'length', usage: { completionTokens: 150 } });
    expect(record?.sampledIds).toHaveLength(150);
  });
});
