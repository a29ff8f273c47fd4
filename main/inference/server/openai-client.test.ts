import OpenAI, { APIError } from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { createChatFormat } from '../chat/create-chat-format.ts';
import { MemoryLedger } from '../chat/ledger.ts';
import { canonicalMessageHash } from '../chat/message-hash.ts';
import { ScriptedModel } from '../testing/scripted-model.ts';
import { CompletionService } from './completion-service.ts';
import { InferenceServer } from './inference-server.ts';
import { Owners } from './owners.ts';

const running: InferenceServer[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.dispose();
});

/** ChatML with Hermes calls, as Qwen2.5 writes it. */
const chatTemplate = `{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call as <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** The official client against the endpoint with the product's own chat format. */
async function start(answer: (prompt: string) => string, apiKey = 'secret') {
  const model = new ScriptedModel({ answer, contextSize: 3000, chatTemplate });
  const records: CompletionRecord[] = [];
  const owners = new Owners(() => new MemoryLedger());
  owners.grant('secret', 'episode', []);
  const server = new InferenceServer({ owners, logger: silentLogger, socketPath: null });
  running.push(server);
  server.serve(
    new CompletionService({
      model,
      format: createChatFormat(model),
      hashMessage: canonicalMessageHash,
      record: (record) => Promise.resolve(void records.push(record)),
      reportProgress: () => undefined,
      maxQueued: 10,
    }),
  );
  const baseURL = `http://127.0.0.1:${await server.listen()}/v1`;
  return { client: new OpenAI({ baseURL, apiKey, maxRetries: 0 }), model, records };
}

const user = (content: string) => ({ role: 'user' as const, content });
const tools = [
  {
    type: 'function' as const,
    function: { name: 'add', parameters: { type: 'object', properties: { a: { type: 'integer' } } } },
  },
];
const call = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>';

describe('the openai client', () => {
  it('lists models and chats, streamed and not', async () => {
    const { client } = await start(() => 'Grüße!');
    expect((await client.models.list()).data.map((model) => model.id)).toEqual(['scripted']);
    const request = { model: 'scripted', messages: [user('hi')], seed: 1 };
    const answer = await client.chat.completions.create(request);
    expect(answer.choices[0]).toMatchObject({ message: { content: 'Grüße!' }, finish_reason: 'stop' });
    const stream = await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    let usage: unknown;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage ?? usage;
    }
    expect(text).toBe('Grüße!');
    expect(usage).toMatchObject({ completion_tokens: 9 });
  });

  it('makes a round trip of a tool call without rendering it again', async () => {
    const { client, records } = await start((prompt) => (prompt.includes('4 apples') ? 'Four.' : call));
    const messages: OpenAI.ChatCompletionMessageParam[] = [user('add')];
    const first = await client.chat.completions.create({ model: 'scripted', messages, tools });
    const message = first.choices[0]?.message;
    expect(first.choices[0]?.finish_reason).toBe('tool_calls');
    expect(message?.tool_calls?.[0]).toMatchObject({ type: 'function', function: { name: 'add' } });
    if (message === undefined) throw new Error('no message');
    messages.push(message, { role: 'tool', tool_call_id: message.tool_calls?.[0]?.id ?? '', content: '4 apples' });
    const second = await client.chat.completions.create({ model: 'scripted', messages, tools });
    expect(second.choices[0]?.message.content).toBe('Four.');
    expect(records.map((record) => record.ledgerMisses)).toEqual([0, 0]);
    expect(records[1]?.parentCompletionId).toBe(first.id);
    expect(second.usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(records[0]?.usage.promptTokens ?? 0);
  });

  it('streams a tool call whose pieces join to JSON', async () => {
    const { client } = await start(() => `Let me see.\n${call}`);
    const stream = client.chat.completions.stream({ model: 'scripted', messages: [user('add')], tools });
    const final = await stream.finalChatCompletion();
    const made = final.choices[0]?.message.tool_calls?.[0];
    expect(made?.type === 'function' && JSON.parse(made.function.arguments)).toEqual({ a: 2 });
    expect(final.choices[0]?.finish_reason).toBe('tool_calls');
  });

  it('asks for a schema, which becomes the grammar', async () => {
    const { client, model } = await start(() => '{"answer": 4}');
    const schema = { type: 'object', properties: { answer: { type: 'integer' } }, required: ['answer'] };
    const answer = await client.chat.completions.create({
      model: 'scripted',
      messages: [user('2 + 2')],
      response_format: { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema } },
    });
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toEqual({ answer: 4 });
    expect(JSON.stringify(model.requests[0]?.grammar?.schema)).toContain('"answer"');
  });

  it('throws its own class for each status', async () => {
    const { client } = await start((prompt) => {
      if (prompt.includes('break')) throw new Error('decode failed');
      return 'x';
    });
    const failure = (request: object) =>
      client.chat.completions
        .create({ model: 'scripted', messages: [user('hi')], ...request })
        .then(() => null)
        .catch((error: unknown) => (error instanceof APIError ? [error.constructor, error.status, error.code] : error));
    expect(await failure({ model: 'other' })).toEqual([OpenAI.NotFoundError, 404, 'model_not_found']);
    expect(await failure({ temperature: -1 })).toEqual([OpenAI.BadRequestError, 400, 'invalid_value']);
    const long = [user('x'.repeat(4000))];
    expect(await failure({ messages: long })).toEqual([OpenAI.BadRequestError, 400, 'context_length_exceeded']);
    expect(await failure({ messages: [user('break')] })).toEqual([OpenAI.InternalServerError, 500, 'engine_failure']);
    const stranger = (await start(() => 'x', 'wrong')).client;
    await expect(stranger.models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  });
});
