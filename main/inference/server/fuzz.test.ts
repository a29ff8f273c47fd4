import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ScriptedServer, startScriptedServer } from '../testing/scripted-server.ts';
import { IncrementalDecoder, StopTextFilter } from './incremental-decoder.ts';
import { checkDepth } from './read-body.ts';

let server: ScriptedServer;
beforeAll(async () => {
  server = await startScriptedServer({ answer: () => 'ok', contextSize: 5000 });
});
afterAll(async () => {
  await server.server.dispose();
});

/** Every answer is a completion or an error in OpenAI's form that is not our fault. */
async function expectAnswer(response: Response): Promise<void> {
  const text = await response.text();
  if (response.status === 200) return;
  expect(response.status, text).toBeLessThan(500);
  const body = JSON.parse(text) as { error: Record<string, unknown> };
  expect(typeof body.error.message).toBe('string');
  expect(typeof body.error.type).toBe('string');
  expect(body.error).toHaveProperty('param');
  expect(body.error).toHaveProperty('code');
}

const fields = [
  'messages',
  'tools',
  'tool_choice',
  'response_format',
  'temperature',
  'top_p',
  'top_k',
  'seed',
  'max_tokens',
  'stop',
  'stream',
  'stream_options',
  'chat_template_kwargs',
  'mass',
  'n',
];
const valid = {
  model: 'scripted',
  messages: [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: null, tool_calls: [{ id: 'a', function: { name: 'f', arguments: '{' } }] },
    { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'x' }] },
  ],
  tools: [{ type: 'function', function: { name: 'f', parameters: {} } }],
};

describe('whatever is sent', () => {
  it('bytes that are no request get an error in the right form', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.string(), fc.json(), fc.string({ unit: 'binary' })), async (body) => {
        await expectAnswer(await server.post('/v1/chat/completions', body));
        await expectAnswer(await server.post('/v1/tokenize', body));
      }),
      { numRuns: 150 },
    );
  });

  it('a request with one field of any value gets an answer', async () => {
    const part = fc.oneof(
      fc.jsonValue({ maxDepth: 4 }),
      fc.array(fc.record({ role: fc.constantFrom('user', 'tool', 'assistant', 'x'), content: fc.jsonValue() })),
      fc.record({ type: fc.constantFrom('function', 'json_schema', 'json_object'), json_schema: fc.jsonValue() }),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...fields), part, async (field, value) => {
        await expectAnswer(await server.chat({ ...valid, [field]: value }));
      }),
      { numRuns: 300 },
    );
    expect(server.model.counts.running).toBe(0);
    expect((await server.chat()).status).toBe(200);
  });
});

describe('incremental decoding', () => {
  const decode = (ids: readonly number[]) => server.model.detokenize(ids, { special: true });

  it('joins to the decoded whole, however it is cut', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.array(fc.integer({ min: 1, max: 5 })), (text, sizes) => {
        const ids = [...Buffer.from(text)];
        const decoder = new IncrementalDecoder(decode);
        let joined = '';
        for (const size of [...sizes, ids.length]) joined += decoder.push(ids.splice(0, size));
        expect(joined + decoder.finish()).toBe(Buffer.from(text).toString());
      }),
    );
  });

  it('does not wait for ever for bytes that make no character', () => {
    const decoder = new IncrementalDecoder(decode);
    const pieces = [...Array.from({ length: 16 }, () => 0xff), 0x41].map((id) => decoder.push([id]));
    expect(pieces.slice(0, 15).join('')).toBe('');
    expect(pieces[15]).toBe('\uFFFD'.repeat(16));
    expect(pieces.join('') + decoder.finish()).toContain('A');
  });

  it('cuts at the first stop text, however the text comes (property)', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 12 });
    const stops = fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 4 }), {
      maxLength: 3,
    });
    fc.assert(
      fc.property(letters, stops, (text, stopTexts) => {
        const filter = new StopTextFilter(stopTexts);
        const given = [...text].map((letter) => filter.push(letter)).join('') + filter.finish();
        // Letter by letter, the stop text that is complete first wins; of those, the one that begins first.
        let expected = text;
        for (let end = 1; end <= text.length; end++) {
          const starts = stopTexts.map((stop) => text.slice(0, end).indexOf(stop)).filter((at) => at !== -1);
          if (starts.length === 0) continue;
          expected = text.slice(0, Math.min(...starts));
          break;
        }
        expect(given).toBe(expected);
      }),
    );
  });
});

it('measures nesting without recursion', () => {
  let deep: unknown = 1;
  for (let i = 0; i < 200_000; i++) deep = [deep];
  expect(() => checkDepth(deep)).toThrow(/deeper than 128/);
  expect(() => checkDepth({ a: [{ b: [1, 'x', null] }] })).not.toThrow();
});
