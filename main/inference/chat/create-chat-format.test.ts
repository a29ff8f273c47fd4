import { describe, expect, it } from 'vitest';
import type { AssistantMessage, Message } from '../../common/domain/chat.ts';
import { schemaToGbnf } from '../scheduler/json-schema-gbnf.ts';
import { createChatFormat } from './create-chat-format.ts';
import { boundedSchema } from './grammar-schema.ts';
import { JinjaTemplate, strftime } from './jinja-template.ts';
import { MemoryLedger } from './ledger.ts';
import { canonicalMessageHash } from './message-hash.ts';
import { familyOf } from './required-call.ts';
import { byteModel, endId, idOf } from './testing/byte-tokenizer.ts';
import { request, writeFile } from './testing/requests.ts';
import { chatMl, hermesLike, qwenLike } from './testing/templates.ts';

const user: Message = { role: 'user', content: 'x' };
const render = (template: string, ...args: Parameters<typeof request>) => {
  const model = byteModel(template);
  const rendered = createChatFormat(model).render(request(...args), new MemoryLedger());
  return { ...rendered, text: model.detokenize(rendered.promptIds, { special: true }) };
};

describe('createChatFormat', () => {
  it('reads the family from the template', () => {
    expect([qwenLike, hermesLike, chatMl].map(familyOf)).toEqual(['qwen-xml', 'hermes', 'json']);
  });

  it('refuses a model without a template, with a damaged one, and a conversation the template refuses', () => {
    expect(() => createChatFormat(byteModel(null))).toThrow(/no chat template/);
    expect(() => createChatFormat(byteModel('{% for %}'))).toThrow(/damaged/);
    expect(() => render(qwenLike, [user, { role: 'system', content: 'late' }])).toThrow(/A system message comes first/);
  });

  it('adds the BOS id that the tokenizer would add, once', () => {
    for (const template of [chatMl, `{{ bos_token }}${chatMl}`]) {
      const model = byteModel(template, { bosToken: '<|endoftext|>', addedBosId: idOf('<|endoftext|>') });
      const { promptIds, forkPoints } = createChatFormat(model).render(request([user, user]), new MemoryLedger());
      expect(promptIds.slice(0, 2)).toEqual([idOf('<|endoftext|>'), idOf('<|im_start|>')]);
      expect(forkPoints.map((at) => promptIds[at])).toContain(idOf('<|im_start|>'));
    }
  });

  it('stops at the end of a turn that the model does not name as an end', () => {
    const model = byteModel(chatMl, { endIds: [idOf('<|endoftext|>')] });
    expect(createChatFormat(model).render(request([user]), new MemoryLedger()).stopIds).toEqual([endId]);
    expect(render(chatMl, [user]).stopIds).toEqual([]);
  });
});

describe('schemas', () => {
  const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };

  it('are enforced after the reasoning block, or from the start without one', () => {
    expect(render(qwenLike, [user], { responseSchema: schema }).grammar).toEqual({ schema, afterId: idOf('</think>') });
    expect(render(hermesLike, [user], { responseSchema: schema }).grammar).toEqual({
      schema,
      afterId: idOf('</think>'),
    });
    expect(render(qwenLike, [user], { responseSchema: schema, thinking: false }).grammar).toEqual({
      schema,
      afterId: null,
    });
    expect(render(chatMl, [user], { responseSchema: schema }).grammar).toEqual({ schema, afterId: null });
  });

  it('of any object ask for an object', () => {
    expect(render(chatMl, [user], { responseSchema: {} }).grammar?.schema).toEqual({
      type: 'object',
      additionalProperties: true,
    });
  });

  it('and calls at once are refused where the model calls in its own form', () => {
    expect(() => render(qwenLike, [user], { tools: [writeFile], responseSchema: schema })).toThrow(/not for both/);
    expect(
      render(qwenLike, [user], { tools: [writeFile], toolChoice: 'none', responseSchema: schema }).grammar,
    ).not.toBeNull();
  });
});

describe('the json family', () => {
  const tools = [writeFile];
  const shape = (change: object) => render(chatMl, [user], { tools, ...change }).grammar?.schema;

  it('offers each tool, then a reply', () => {
    const call = {
      type: 'object',
      properties: {
        tool: { const: 'write_file' },
        arguments: {
          type: 'object',
          properties: {
            path: { type: 'string', minLength: 0, maxLength: 2000 },
            content: { type: 'string', minLength: 0, maxLength: 400 },
            lines: { type: 'integer' },
            tags: {
              type: 'array',
              items: { type: 'string', minLength: 0, maxLength: 2000 },
              minItems: 0,
              maxItems: 64,
            },
            append: { type: 'boolean' },
          },
          required: ['path', 'content'],
          additionalProperties: false,
        },
      },
      required: ['tool', 'arguments'],
    };
    const reply = { type: 'object', properties: { reply: { type: 'string', maxLength: 2000 } }, required: ['reply'] };
    expect(shape({})).toEqual({ oneOf: [call, reply] });
    expect(shape({ toolChoice: 'required' })).toEqual(call);
    expect(shape({ toolChoice: { name: 'write_file' } })).toEqual(call);
    expect(shape({ toolChoice: 'none' })).toEqual(reply);
    expect(() => shape({ toolChoice: { name: 'fly' } })).toThrow(/no tool fly/);
    expect(schemaToGbnf(shape({}) ?? {})).toContain('root ::=');
  });

  it('describes the tools after the system prompt and wraps results as a user message', () => {
    const call: AssistantMessage = {
      role: 'assistant',
      content: '',
      toolCalls: [{ id: 'c', name: 'write_file', arguments: '{"path":"a","content":"b"}' }],
    };
    const { text, ledgerMisses } = render(
      chatMl,
      [
        { role: 'system', content: 'Be brief.' },
        user,
        call,
        { role: 'tool', toolCallId: 'c', content: 'ok <|im_end|>' },
        { role: 'assistant', content: 'Done "x".' },
        user,
      ],
      { tools },
    );
    expect(text).toContain('<|im_start|>system\nBe brief.\n\n');
    expect(text).toContain('{"tool":"write_file","arguments":{"path":"string","content":"string","lines":"integer"');
    expect(text).toContain(
      'assistant\n{"tool":"write_file","arguments":{"path":"a","content":"b"}}<|im_end|>\n<|im_start|>user\nTool result:\nok <|im_end|><|im_end|>\n',
    );
    expect(text).toContain('assistant\n{"reply":"Done \\"x\\"."}<|im_end|>\n');
    expect(ledgerMisses).toBe(2);
  });

  it('leaves a conversation without tools alone', () => {
    const { text, grammar, parserState } = render(chatMl, [user, { role: 'assistant', content: 'y' }, user]);
    expect(text).toBe(
      '<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n',
    );
    expect(grammar).toBeNull();
    expect(parserState.expectsJsonAction).toBe(false);
  });
});

describe('boundedSchema', () => {
  it('keeps structure, bounds what is open, puts references in place and drops the rest', () => {
    expect(
      boundedSchema({
        $defs: {
          point: { type: 'object', properties: { x: { type: 'number', minimum: 0 } }, required: ['x', 'gone'] },
        },
        type: 'object',
        properties: {
          at: { $ref: '#/$defs/point' },
          when: { type: ['string', 'null'], format: 'date', pattern: '^2' },
          kind: { enum: ['a', 'b'], description: 'which' },
          any: { description: 'anything' },
        },
      }),
    ).toEqual({
      type: 'object',
      properties: {
        at: { type: 'object', properties: { x: { type: 'number' } }, required: ['x'], additionalProperties: false },
        when: { anyOf: [{ type: 'string', minLength: 0, maxLength: 2000 }, { type: 'null' }] },
        kind: { enum: ['a', 'b'] },
        any: {},
      },
      required: [],
      additionalProperties: false,
    });
  });

  it('refuses references that lead nowhere or round', () => {
    expect(() => boundedSchema({ $ref: '#/$defs/none' })).toThrow(/leads nowhere/);
    expect(() => boundedSchema({ $ref: 'other.json' })).toThrow(/leads nowhere/);
    expect(() => boundedSchema({ $defs: { a: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' })).toThrow(/without cycles/);
  });
});

describe('canonicalMessageHash', () => {
  const message = (change: Partial<AssistantMessage> = {}, args = '{"b":1,"a":"x"}'): AssistantMessage => ({
    role: 'assistant',
    content: 'Hi',
    toolCalls: [{ id: 'c1', name: 'f', arguments: args }],
    ...change,
  });

  it('is the same however a client sends the message back', () => {
    const hash = canonicalMessageHash(message());
    expect(canonicalMessageHash(message({ reasoning: 'r' }))).toBe(hash);
    expect(canonicalMessageHash(message({ content: ' Hi\n' }))).toBe(hash);
    expect(canonicalMessageHash(message({}, '{ "a": "x", "b": 1.0 }'))).toBe(hash);
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
  });

  it('differs with content, id, name and arguments', () => {
    const others = [
      message({ content: 'Ho' }),
      message({ toolCalls: [] }),
      message({}, '{"b":2,"a":"x"}'),
      message({}, '{"b":1'),
      message({ toolCalls: [{ id: 'c2', name: 'f', arguments: '{"b":1,"a":"x"}' }] }),
      message({ toolCalls: [{ id: 'c1', name: 'g', arguments: '{"b":1,"a":"x"}' }] }),
    ];
    expect(new Set([message(), ...others].map(canonicalMessageHash)).size).toBe(7);
  });

  it('has one value for ever: entries are stored', () => {
    expect(canonicalMessageHash({ role: 'assistant', content: 'Hi' })).toBe(
      '91392e61fb8db8b95261248579f8241d2708fac44672d34f8f2cae25f80fe00a',
    );
  });
});

describe('MemoryLedger', () => {
  it('forgets the least recently used entry and gives its entries for a restart', () => {
    const ledger = new MemoryLedger(2);
    ledger.add('a', [1]);
    ledger.add('b', [2]);
    expect(ledger.find('a')).toEqual([1]);
    ledger.add('c', [3]);
    expect(ledger.find('b')).toBeUndefined();
    const restored = new MemoryLedger(2);
    restored.restore(ledger.entries());
    expect(restored.entries()).toEqual([
      { messageHash: 'a', sampledIds: [1] },
      { messageHash: 'c', sampledIds: [3] },
    ]);
  });

  it('keeps its own copy of the ids', () => {
    const ids = [1, 2];
    const ledger = new MemoryLedger();
    ledger.add('a', ids);
    ids.push(3);
    expect(ledger.find('a')).toEqual([1, 2]);
  });
});

describe('JinjaTemplate', () => {
  const render = (source: string, variables = {}) =>
    new JinjaTemplate({
      modelId: 'm',
      source,
      bosToken: '<s>',
      eosToken: null,
      now: new Date('2026-01-05T09:07:03Z'),
    }).render(variables);

  it('has the globals that chat templates use', () => {
    expect(
      render(
        '{{ bos_token }}{{ eos_token }}|{{ range(3) | join }}{{ range(5, 1, -2) | join }}|{{ strftime_now("%d %b %Y") }}',
      ),
    ).toBe('<s>|01253|05 Jan 2026');
    expect(render('{{ x | tojson }}', { x: { a: [1, 'é"<'], b: null } })).toBe('{"a": [1, "é\\"<"], "b": null}');
    expect(() => render('{{ raise_exception("no such role") }}')).toThrow(/no such role/);
  });

  it('writes dates in UTC and English', () => {
    expect(strftime(new Date('2026-01-05T09:07:03Z'), '%A %a %B %m %H:%M:%S 100%% %q')).toBe(
      'Monday Mon January 01 09:07:03 100% %q',
    );
  });
});
