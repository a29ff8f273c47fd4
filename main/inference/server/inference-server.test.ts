import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { promptOf } from '../../common/domain/completion-chain.ts';
import { type ScriptedServer, type ScriptedServerOptions, startScriptedServer } from '../testing/scripted-server.ts';

const running: ScriptedServer[] = [];
async function start(options: Partial<ScriptedServerOptions> = {}): Promise<ScriptedServer> {
  const server = await startScriptedServer({ answer: () => 'hello', ...options });
  running.push(server);
  return server;
}
afterEach(async () => {
  for (const { server } of running.splice(0)) await server.dispose();
});

async function errorOf(response: Response) {
  const body = (await response.json()) as { error: Record<string, unknown> };
  expect(Object.keys(body.error)).toEqual(expect.arrayContaining(['message', 'type', 'param', 'code']));
  return { status: response.status, ...body.error };
}

describe('answers', () => {
  it('answers a chat in the form of a completion', async () => {
    const { chat, records } = await start();
    const response = await chat({ seed: 7, max_tokens: 50 }, { 'x-mass-thread': 't1' });
    const body = await response.json();
    expect(body).toMatchObject({
      object: 'chat.completion',
      model: 'scripted',
      choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 20, completion_tokens: 6, total_tokens: 26, prompt_tokens_details: { cached_tokens: 0 } },
    });
    expect(records[0]).toMatchObject({ owner: 'episode', thread: 't1', completionId: (body as { id: string }).id });
    expect(records[0]?.sampling).toMatchObject({ seed: 7, maxTokens: 50, temperature: 0.6, topP: 0.95, topK: 20 });
    expect(response.headers.get('x-mass-completion')).toBe(records[0]?.completionId);
  });

  it('gives reasoning apart and calls with ids that follow from the completion', async () => {
    const { chat } = await start({ answer: () => '<think>hm</think>ok\nCALL add {"a":1}' });
    const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
    const body = await (await chat({ tools }, { 'x-mass-request': 'r1' })).json();
    const again = await (await chat({ tools }, { 'x-mass-request': 'r1' })).json();
    const choice = (body as { choices: { message: { tool_calls: { id: string }[] } }[] }).choices[0];
    expect(choice).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: 'ok',
        reasoning_content: 'hm',
        tool_calls: [{ type: 'function', function: { name: 'add', arguments: '{"a":1}' } }],
      },
    });
    expect(choice?.message.tool_calls[0]?.id).toMatch(/^call_[0-9a-f]{16}_0$/);
    expect(again).toMatchObject({ choices: [choice] });
  });

  it('cuts before a stop text, keeps the sampled ids whole, and ends by length', async () => {
    const { chat, records, model } = await start({ answer: () => 'one two three' });
    const stopped = await (await chat({ stop: ['tw'] })).json();
    expect(stopped).toMatchObject({ choices: [{ message: { content: 'one ' }, finish_reason: 'stop' }] });
    expect(model.detokenize(records[0]?.sampledIds ?? [], { special: true })).toBe('one tw');
    const cut = await (await chat({ max_completion_tokens: 5 })).json();
    expect(cut).toMatchObject({ choices: [{ message: { content: 'one t' }, finish_reason: 'length' }] });
  });

  it('streams the pieces of the same message, with usage when asked for', async () => {
    const { chat } = await start({ answer: () => '<think>wëll</think>Grüße 🙂\nCALL f {"x":[1]}' });
    const text = await (await chat({ stream: true, stream_options: { include_usage: true } })).text();
    const events = text.split('\n\n').filter((line) => line.startsWith('data: '));
    expect(events.at(-1)).toBe('data: [DONE]');
    const chunks = events.slice(0, -1).map((line) => JSON.parse(line.slice(6)));
    const deltas = chunks.flatMap((chunk) => chunk.choices.map((choice: { delta: object }) => choice.delta));
    const joined = (key: string) => deltas.map((delta) => delta[key] ?? '').join('');
    expect([joined('reasoning_content'), joined('content')]).toEqual(['wëll', 'Grüße 🙂']);
    expect(deltas.find((delta) => delta.tool_calls)?.tool_calls[0].function).toEqual({
      name: 'f',
      arguments: '{"x":[1]}',
    });
    expect(chunks.at(-2)?.choices[0].finish_reason).toBe('tool_calls');
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: expect.any(Number) } });
  });

  it('sends comments while a stream waits for its first token', async () => {
    const { chat } = await start({ prefillMs: 120, keepAliveMs: 20 });
    const text = await (await chat({ stream: true })).text();
    expect(text).toMatch(/^: waiting\n\n/);
    expect(text).toContain('"content":"h"');
  });

  it('passes schema, tools, template variables and the shared prefix to the format', async () => {
    const { chat, model, records } = await start({ answer: () => '{"a":1}' });
    const schema = { type: 'object', properties: { a: { type: 'integer' } } };
    await chat({
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
      chat_template_kwargs: { enable_thinking: false },
      mass: { shared_prefix: 'h' },
    });
    expect(model.requests[0]?.grammar).toEqual({ schema, afterId: null });
    expect(records[0]?.sampling.thinking).toBe(false);
    await chat({ response_format: { type: 'json_object' } });
    expect(model.requests[1]?.grammar?.schema).toEqual({});
  });

  it('counts tokens, lists the model, and says how it is', async () => {
    const { url, post, model } = await start();
    expect(await (await post('/v1/tokenize', { text: 'hé', ids: true })).json()).toEqual({
      tokens: 3,
      ids: [104, 195, 169],
    });
    const headers = { authorization: 'Bearer secret' };
    const models = await (await fetch(`${url}/v1/models`, { headers })).json();
    expect(models).toMatchObject({ object: 'list', data: [{ id: 'scripted', object: 'model' }] });
    expect(await (await fetch(`${url}/health`)).json()).toEqual({ status: 'ok', model: 'scripted' });
    expect(await (await fetch(`${url}/metrics`, { headers })).json()).toEqual(model.metrics());
  });

  it('serves a unix socket with the same routes, for its user only', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'mass-socket-'));
    const socketPath = join(folder, 'endpoint');
    const { server } = await start({ socketPath });
    expect(statSync(socketPath).mode & 0o777).toBe(0o600);
    const status = await new Promise((resolve, reject) => {
      httpRequest({ socketPath, path: '/health', headers: { host: 'anything' } }, (answer) =>
        resolve(answer.resume().statusCode),
      )
        .on('error', reject)
        .end();
    });
    expect(status).toBe(200);
    await server.dispose();
    expect(existsSync(socketPath)).toBe(false);
    rmSync(folder, { recursive: true });
  });
});

describe('records', () => {
  it('keeps every prompt as a prefix of its parent plus a tail, and splices what was sampled', async () => {
    const { chat, records, model } = await start({ answer: (prompt) => `turn ${prompt.split('user').length - 1}` });
    const messages: unknown[] = [];
    for (let turn = 1; turn <= 3; turn++) {
      messages.push({ role: 'user', content: `question ${turn}` });
      const body = (await (await chat({ messages })).json()) as { choices: { message: { content: string } }[] };
      messages.push({ role: 'assistant', content: body.choices[0]?.message.content });
    }
    expect(records.map((record) => record.ledgerMisses)).toEqual([0, 0, 0]);
    expect(records.map((record) => record.parentCompletionId)).toEqual([
      null,
      records[0]?.completionId,
      records[1]?.completionId,
    ]);
    expect(records[2]?.usage.cachedTokens).toBe(records[2]?.parentPrefix);
    const whole = new Map<string, number[]>();
    records.forEach((record, i) => {
      const prompt = promptOf(record, whole.get(record.parentCompletionId ?? '') ?? null);
      expect(prompt).toEqual(model.requests[i]?.promptIds);
      whole.set(record.completionId, [...prompt, ...record.sampledIds]);
    });
  });

  it('counts a message that it did not sample as a miss', async () => {
    const { chat, records } = await start();
    await chat({
      messages: [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: 'written by a person' },
        { role: 'user', content: 'b' },
      ],
    });
    expect(records[0]?.ledgerMisses).toBe(1);
  });

  it.each([false, true])('answers only once the record is stored (stream: %s)', async (stream) => {
    let store: (() => void) | undefined;
    const { chat } = await start({ record: () => new Promise<void>((resolve) => (store = resolve)) });
    let text = '';
    const reading = (async () => {
      for await (const chunk of (await chat({ stream })).body ?? []) text += Buffer.from(chunk).toString();
    })();
    await vi.waitFor(() => expect(store).toBeDefined());
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(text).not.toMatch(/"finish_reason":"stop"/);
    store?.();
    await reading;
    expect(text).toMatch(/"finish_reason":"stop"/);
  });

  it('answers 500 when the record could not be stored, and does not build on it', async () => {
    let fail = true;
    const { chat, records } = await start({
      record: () => (fail ? Promise.reject(new Error('disk full')) : Promise.resolve()),
    });
    expect(await errorOf(await chat())).toMatchObject({ status: 500, type: 'server_error' });
    const streamed = await (await chat({ stream: true })).text();
    expect(streamed).toContain('"type":"server_error"');
    expect(streamed).not.toContain('[DONE]');
    fail = false;
    await chat();
    expect(records.map((record) => record.parentCompletionId)).toEqual([null]);
  });

  it('samples a named request once, however often and however early it is sent again', async () => {
    const { chat, records, model } = await start({ tokenMs: 2 });
    const send = async () => (await chat({}, { 'x-mass-request': 'same' })).json();
    const [first, second] = await Promise.all([send(), send()]);
    const third = await send();
    const content = (body: unknown) => (body as { id: string; choices: unknown }).choices;
    expect(content(second)).toEqual(content(first));
    expect(content(third)).toEqual(content(first));
    expect(model.counts.started).toBe(1);
    expect(records).toHaveLength(1);
  });

  it('reports progress of named requests without a gap', async () => {
    const { chat, progress, records } = await start({ answer: () => 'a text of more than sixteen tokens' });
    await chat({}, { 'x-mass-request': 'r' });
    await chat();
    expect(progress.map((piece) => piece.from)).toEqual([0, 16, 32]);
    expect(progress.flatMap((piece) => piece.sampledIds)).toEqual(records[0]?.sampledIds);
  });

  it('continues a request of a crashed process from its ids', async () => {
    const { chat, owners, records, model } = await start();
    owners.resume('episode', 'r', { sampledIds: model.tokenize('hel', { special: false }), resumedAt: [1] });
    const body = await (await chat({}, { 'x-mass-request': 'r' })).json();
    expect(body).toMatchObject({ choices: [{ message: { content: 'hello' } }] });
    expect(records[0]).toMatchObject({ resumedAt: [1, 3] });
    expect(model.counts.sampled).toBe(3);
  });
});

describe('clients that go away', () => {
  it.each([false, true])('frees the sequence (stream: %s)', async (stream) => {
    const { chat, model, records } = await start({ answer: () => 'x'.repeat(10_000), tokenMs: 1, sequences: 1 });
    const abort = new AbortController();
    const asked = chat({ stream }, {}, abort.signal).then((response) => response.text());
    await vi.waitFor(() => expect(model.counts.sampled).toBeGreaterThan(3));
    abort.abort();
    await expect(asked).rejects.toThrow();
    await vi.waitFor(() => expect(model.counts).toMatchObject({ running: 0, aborted: 1 }));
    expect(records).toEqual([]);
    const next = await chat({ max_tokens: 1 });
    expect(next.status).toBe(200);
  });

  it('takes a waiting request out of the queue', async () => {
    const { chat, model } = await start({ answer: () => 'x'.repeat(10_000), tokenMs: 1, sequences: 1 });
    const aborts = [new AbortController(), new AbortController()];
    const asked = aborts.map((abort) => chat({}, {}, abort.signal).catch(() => 'gone'));
    await vi.waitFor(() => expect(model.counts).toMatchObject({ running: 1, queued: 1 }));
    aborts[1]?.abort();
    await vi.waitFor(() => expect(model.counts).toMatchObject({ running: 1, queued: 0 }));
    aborts[0]?.abort();
    await vi.waitFor(() => expect(model.counts.running).toBe(0));
    expect(await Promise.all(asked)).toEqual(['gone', 'gone']);
  });
});

describe('errors', () => {
  it.each<[string, Record<string, unknown>, Record<string, unknown>]>([
    ['no messages', { messages: [] }, { param: 'messages' }],
    ['a role nobody has', { messages: [{ role: 'robot', content: 'x' }] }, { param: 'messages[0].role' }],
    [
      'an image',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      { param: 'messages[0].content[0]', message: expect.stringContaining('only text is supported, not image_url') },
    ],
    ['a number as content', { messages: [{ role: 'user', content: 5 }] }, { param: 'messages[0].content' }],
    ['a wrong temperature', { temperature: 'hot' }, { param: 'temperature' }],
    ['no tokens', { max_tokens: 0 }, { param: 'max_tokens' }],
    ['two choices', { n: 2 }, { param: 'n' }],
    ['a forced call without tools', { tool_choice: 'required' }, { param: 'tool_choice' }],
    [
      'an unknown forced tool',
      {
        tools: [{ type: 'function', function: { name: 'f' } }],
        tool_choice: { type: 'function', function: { name: 'g' } },
      },
      { param: 'tool_choice' },
    ],
    ['an empty stop text', { stop: [''] }, { param: 'stop[0]' }],
    [
      'a schema without a grammar',
      { response_format: { type: 'json_schema', json_schema: { schema: { type: 'unsupported' } } } },
      { code: 'invalid_schema', param: 'response_format.json_schema.schema' },
    ],
    ['a schema that is none', { response_format: { type: 'json_schema', json_schema: { schema: 'x' } } }, {}],
  ])('refuses %s with 400', async (_what, fields, expected) => {
    const { chat, model } = await start();
    expect(await errorOf(await chat(fields))).toMatchObject({
      status: 400,
      type: 'invalid_request_error',
      ...expected,
    });
    expect(model.counts.started).toBe(0);
  });

  it('names both numbers of a context overflow', async () => {
    const { chat } = await start({ contextSize: 600 });
    const error = await errorOf(await chat({ messages: [{ role: 'user', content: 'x'.repeat(600) }] }));
    expect(error).toMatchObject({
      status: 400,
      code: 'context_length_exceeded',
      param: 'messages',
      prompt_tokens: 618,
      context_tokens: 600,
    });
    expect(error).toHaveProperty('message', expect.stringMatching(/600 tokens.*618 tokens/));
  });

  it('counts a text that cannot fit in slices and stops early', async () => {
    const { chat } = await start({ contextSize: 1000 });
    const error = await errorOf(await chat({ messages: [{ role: 'user', content: 'x'.repeat(2_000_000) }] }));
    expect(error).toMatchObject({ code: 'context_length_exceeded', prompt_tokens: 65_536, context_tokens: 1000 });
  });

  it('knows neither other models nor other paths, methods, tokens and hosts', async () => {
    const { chat, url, post, port } = await start();
    expect(await errorOf(await chat({ model: 'gpt' }))).toMatchObject({ status: 404, code: 'model_not_found' });
    expect(await errorOf(await post('/v1/nothing', {}))).toMatchObject({ status: 404, code: 'unknown_url' });
    expect(await errorOf(await fetch(`${url}/v1/chat/completions`))).toMatchObject({ status: 405 });
    for (const authorization of ['', 'Bearer', 'Bearer wrong', 'Basic secret']) {
      expect(await errorOf(await chat({}, { authorization }))).toMatchObject({ status: 401, code: 'invalid_api_key' });
    }
    const status = await new Promise((resolve) => {
      httpRequest({ host: '127.0.0.1', port, path: '/health', headers: { host: 'evil.example:80' } }, (answer) =>
        resolve(answer.resume().statusCode),
      ).end();
    });
    expect(status).toBe(403);
  });

  it('forgets an owner with its last token', async () => {
    const { chat, owners } = await start();
    owners.grant('second', 'episode', []);
    owners.revoke('secret');
    expect((await chat()).status).toBe(401);
    expect((await chat({}, { authorization: 'Bearer second' })).status).toBe(200);
    owners.revoke('second');
    expect((await chat({}, { authorization: 'Bearer second' })).status).toBe(401);
  });

  it('refuses what is not JSON', async () => {
    const { post } = await start();
    const path = '/v1/chat/completions';
    expect(await errorOf(await post(path, '{"model":'))).toMatchObject({ status: 400, code: 'invalid_json' });
    expect(await errorOf(await post(path, ''))).toMatchObject({ status: 400, code: 'invalid_json' });
    expect(await errorOf(await post(path, '{}', { 'content-type': 'text/plain' }))).toMatchObject({
      status: 400,
      code: 'unsupported_content_type',
    });
    const deep = `{"model":"scripted","messages":${'['.repeat(100_000)}${']'.repeat(100_000)}}`;
    expect(await errorOf(await post(path, deep))).toMatchObject({ status: 400, code: 'too_deep' });
  });

  it('refuses a huge body with 413 and goes on', async () => {
    const { post, chat } = await start();
    const huge = `{"model":"scripted","messages":[{"role":"user","content":"${'x'.repeat(40 * 1024 * 1024)}"}]}`;
    expect(await errorOf(await post('/v1/chat/completions', huge))).toMatchObject({
      status: 413,
      code: 'request_too_large',
    });
    expect((await chat()).status).toBe(200);
  });

  it('answers what is not HTTP in the same form', async () => {
    const { port } = await start();
    const text = await new Promise<string>((resolve, reject) => {
      let all = '';
      const socket = connect(port, '127.0.0.1', () => socket.write('NONSENSE\r\n\r\n'));
      socket.on('data', (data) => (all += data.toString()));
      socket.on('end', () => resolve(all)).on('error', reject);
    });
    expect(text).toMatch(/^HTTP\/1\.1 400/);
    expect(JSON.parse(text.split('\r\n\r\n')[1] ?? '')).toMatchObject({ error: { code: 'bad_http' } });
  });

  it('says 503 while the model loads and 429 when too many wait', async () => {
    const loading = await start({ loaded: false });
    const answer = await loading.chat();
    expect(answer.headers.get('retry-after')).toBe('1');
    expect(await errorOf(answer)).toMatchObject({ status: 503, code: 'model_not_loaded' });
    expect((await fetch(`${loading.url}/health`)).status).toBe(503);

    const { chat, model } = await start({ sequences: 1, maxQueued: 1, tokenMs: 20 });
    const both = [chat(), chat()];
    await vi.waitFor(() => expect(model.counts).toMatchObject({ running: 1, queued: 1 }));
    const refused = await chat();
    expect(refused.headers.get('retry-after')).toBe('2');
    expect(await errorOf(refused)).toMatchObject({ status: 429, type: 'rate_limit_error' });
    expect((await Promise.all(both)).map((response) => response.status)).toEqual([200, 200]);
  });

  it('says 500 when the engine fails, also when its own code does', async () => {
    const { chat, model } = await start({
      answer: () => {
        throw new Error('decode failed');
      },
    });
    expect(await errorOf(await chat())).toMatchObject({ status: 500, code: 'engine_failure', type: 'server_error' });
    expect(await errorOf(await chat({ stream: true }))).toMatchObject({ status: 500 });
    expect(model.counts.running).toBe(0);
  });
});

describe('stopping', () => {
  it('ends requests in flight and closes', async () => {
    const { chat, model, server } = await start({ answer: () => 'x'.repeat(10_000), tokenMs: 1 });
    const asked = chat();
    await vi.waitFor(() => expect(model.counts.running).toBe(1));
    await server.dispose();
    expect((await asked).status).toBe(503);
    expect(model.counts.running).toBe(0);
  });
});
