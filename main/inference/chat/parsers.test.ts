import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { AssistantMessage } from '../../common/domain/chat.ts';
import type { ChatDelta, CompletionParser, ParserState } from './chat-format.ts';
import { hermesParser } from './hermes.ts';
import { jsonActionParser } from './json-action.ts';
import { qwenXmlParser } from './qwen-xml.ts';
import { writeFile } from './testing/requests.ts';

type Create = (state: ParserState) => CompletionParser;
const state: ParserState = { reasoningOpen: false, expectsJsonAction: false, tools: [writeFile] };

/** Call ids are random: compared by place, not by value. */
const withoutIds = (message: AssistantMessage) => ({
  ...message,
  toolCalls: (message.toolCalls ?? []).map(({ name, arguments: args }) => [name, args]),
});

function parse(create: Create, pieces: readonly string[], parserState = state, truncated = false) {
  const parser = create(parserState);
  const deltas: ChatDelta[] = pieces.flatMap((piece) => parser.push(piece));
  const end = parser.finish(truncated);
  deltas.push(...end.deltas);
  const joined = (kind: 'content' | 'reasoning') =>
    deltas.map((delta) => (delta.kind === kind ? delta.text : '')).join('');
  // Whatever the answer: what was streamed is what is kept.
  expect(joined('content')).toBe(end.message.content);
  expect(joined('reasoning')).toBe(end.message.reasoning ?? '');
  expect(deltas.filter((delta) => delta.kind === 'tool-call').map(({ id }) => id)).toEqual(
    (end.message.toolCalls ?? []).map(({ id }) => id),
  );
  return withoutIds(end.message);
}

const xml = (parameters: string, name = 'write_file') =>
  `<tool_call>\n<function=${name}>\n${parameters}</function>\n</tool_call>`;
const parameter = (key: string, value: string) => `<parameter=${key}>\n${value}\n</parameter>\n`;

describe('qwen-xml', () => {
  const whole = (text: string, change: Partial<ParserState> = {}, truncated = false) =>
    parse(qwenXmlParser, [text], { ...state, ...change }, truncated);

  it('reads reasoning that the prompt opened, text, and calls typed by the tool', () => {
    const text = `Let me.\n</think>\n\nWriting.\n\n${xml(
      parameter('path', 'a.py') +
        parameter('content', 'if a < b:\n    print("x")\n') +
        parameter('lines', '2') +
        parameter('tags', '["x", 1]') +
        parameter('append', 'True'),
    )}\n${xml(parameter('path', '5'))}`;
    expect(whole(text, { reasoningOpen: true })).toEqual({
      role: 'assistant',
      reasoning: 'Let me.',
      content: 'Writing.',
      toolCalls: [
        [
          'write_file',
          '{"path":"a.py","content":"if a < b:\\n    print(\\"x\\")\\n","lines":2,"tags":["x",1],"append":true}',
        ],
        ['write_file', '{"path":"5"}'],
      ],
    });
  });

  it('keeps tags inside a value', () => {
    const value = '</tool_call>\n<tool_call>\n</parameter> x </function></think>';
    expect(whole(xml(parameter('content', value))).toolCalls).toEqual([
      ['write_file', JSON.stringify({ content: value })],
    ]);
  });

  it('keeps a value that does not fit its type as the text it is', () => {
    expect(whole(xml(parameter('lines', 'many'))).toolCalls).toEqual([['write_file', '{"lines":"many"}']]);
  });

  it('keeps the names __proto__ and constructor as data', () => {
    expect(whole(xml(parameter('__proto__', 'x') + parameter('constructor', 'y'))).toolCalls).toEqual([
      ['write_file', '{"__proto__":"x","constructor":"y"}'],
    ]);
  });

  it('passes on a call of an unknown tool, for the runtime to answer, with values as text', () => {
    expect(whole(xml(parameter('n', '3'), 'fly')).toolCalls).toEqual([['fly', '{"n":"3"}']]);
  });

  it.each([
    ['no function', '<tool_call>\nwrite\n</tool_call>'],
    ['text between parameters', xml(`${parameter('path', 'a')}oops\n`)],
    ['a value that never ends', '<tool_call>\n<function=write_file>\n<parameter=path>\na\n</function>\n</tool_call>'],
    ['no name', xml('', '')],
    ['an unclosed call', `<tool_call>\n<function=write_file>\n${parameter('path', 'a')}</function>`],
    ['the beginning of a tag', 'a <tool_ca'],
  ])('takes a call with %s as content', (_why, text) => {
    expect(whole(text)).toEqual({ role: 'assistant', content: text, toolCalls: [] });
    expect(whole(text, {}, true)).toEqual({ role: 'assistant', content: text, toolCalls: [] });
  });

  it('executes the calls that were complete before the length ended', () => {
    const text = `${xml(parameter('path', 'a'))}\n<tool_call>\n<function=write_file>\n<parameter=path>\nb`;
    const message = whole(text, {}, true);
    expect(message.toolCalls).toEqual([['write_file', '{"path":"a"}']]);
    expect(message.content).toBe('<tool_call>\n<function=write_file>\n<parameter=path>\nb');
  });

  it('reads no calls where none are allowed', () => {
    const text = xml(parameter('path', 'a'));
    expect(parse(qwenXmlParser, [text], { reasoningOpen: false, expectsJsonAction: false })).toMatchObject({
      content: text,
    });
  });

  it('takes reasoning without an end as reasoning', () => {
    expect(whole('So then </thin', { reasoningOpen: true }, true)).toMatchObject({
      reasoning: 'So then </thin',
      content: '',
    });
  });

  it('reads a tagged block that the model opened itself', () => {
    expect(whole('\n<think>\nHm\n</think>\nYes')).toMatchObject({ reasoning: 'Hm', content: 'Yes' });
    expect(whole('<thinking> is a word')).toMatchObject({ content: '<thinking> is a word' });
  });

  it('reads on from the beginning that the prompt supplied', () => {
    const text = xml(parameter('path', 'a')).slice('<tool_call>\n'.length);
    expect(whole(text, { supplied: '<tool_call>\n' }).toolCalls).toEqual([['write_file', '{"path":"a"}']]);
  });
});

describe('hermes', () => {
  const whole = (text: string) => parse(hermesParser, [text]);

  it('reads calls after text', () => {
    expect(
      whole('Sure.\n<tool_call>\n{"name": "write_file", "arguments": {"path": "</tool_call> \\" x"}}\n</tool_call>'),
    ).toEqual({ role: 'assistant', content: 'Sure.', toolCalls: [['write_file', '{"path":"</tool_call> \\" x"}']] });
  });

  it('reads arguments given as JSON text, and none as an empty object', () => {
    expect(
      whole('<tool_call>{"name":"a","arguments":"{\\"b\\": 1}"}</tool_call><tool_call>{"name":"c"}</tool_call>')
        .toolCalls,
    ).toEqual([
      ['a', '{"b":1}'],
      ['c', '{}'],
    ]);
  });

  it.each(['{"name": "a", "arguments": [1]}', '{"name": 3}', '{"name": "a", ', '[]', 'run it'])(
    'takes %s as content',
    (inside) => {
      const text = `<tool_call>${inside}</tool_call>`;
      expect(whole(text)).toEqual({ role: 'assistant', content: text, toolCalls: [] });
    },
  );
});

describe('json', () => {
  const action = { ...state, expectsJsonAction: true };
  const whole = (text: string, change: Partial<ParserState> = {}) =>
    parse(jsonActionParser, [text], { ...action, ...change });

  it('reads a call, a reply, and a structured reply', () => {
    expect(whole('{"tool": "write_file", "arguments": {"path": "a", "lines": 2}}\n')).toEqual({
      role: 'assistant',
      content: '',
      toolCalls: [['write_file', '{"path":"a","lines":2}']],
    });
    expect(whole('{"reply": " Done.\\n"}')).toMatchObject({ content: ' Done.\n', toolCalls: [] });
    expect(whole('{"reply": {"a": 1}}')).toMatchObject({ content: '{"a":1}' });
  });

  it('takes everything else as content', () => {
    for (const text of [
      '{"tool": "write_file", "arguments": {"path": "a',
      'Hello',
      '{"tool": 3}',
      '[1]',
      '{"tool": "a", "arguments": []}',
    ]) {
      expect(whole(text)).toEqual({ role: 'assistant', content: text, toolCalls: [] });
    }
  });

  it('reads no call where only a reply is allowed', () => {
    const text = '{"tool": "write_file", "arguments": {}}';
    expect(parse(jsonActionParser, [text], { reasoningOpen: false, expectsJsonAction: true })).toMatchObject({
      content: text,
      toolCalls: [],
    });
  });

  it('passes free text on as it comes', () => {
    const parser = jsonActionParser({ reasoningOpen: false, expectsJsonAction: false });
    expect(parser.push('Hello ')).toEqual([{ kind: 'content', text: 'Hello' }]);
    expect(parser.push('you')).toEqual([{ kind: 'content', text: ' you' }]);
  });
});

describe('any completion in any pieces', () => {
  const unit = fc.constantFrom(
    ...['<think>', '</think>', '<tool_call>', '</tool_call>', '<function=write_file>', '<function=', '</function>'],
    ...[
      '<parameter=path>',
      '<parameter=lines>',
      '</parameter>',
      '{"name": "a", "arguments": {}}',
      '{"reply": "',
      '{"tool": "',
    ],
    ...['\n', ' ', 'a', '"', '}', '<', '>', '\\', '😀', xml(parameter('path', 'p'))],
  );
  const text = fc.array(unit, { maxLength: 14 }).map((parts) => parts.join(''));
  const parsers: [string, Create][] = [
    ['qwen-xml', qwenXmlParser],
    ['hermes', hermesParser],
    ['json', jsonActionParser],
  ];

  it.each(parsers)('gives the message of the whole text (%s)', (_name, create) => {
    fc.assert(
      fc.property(
        text,
        fc.infiniteStream(fc.integer({ min: 1, max: 9 })),
        fc.boolean(),
        fc.boolean(),
        (all, sizes, open, json) => {
          const parserState = { ...state, reasoningOpen: open, expectsJsonAction: json };
          const pieces: string[] = [];
          for (let at = 0; at < all.length; ) {
            const size = sizes.next().value ?? 1;
            pieces.push(all.slice(at, at + size));
            at += size;
          }
          expect(parse(create, pieces, parserState)).toEqual(parse(create, [all], parserState));
        },
      ),
      { numRuns: 400 },
    );
  });

  it('reads back every call that it can be written', () => {
    const value = fc.string({
      unit: fc.constantFrom('a', '\n', ' ', '"', '<', '/', '>', '</tool_call>', '<tool_call>', '</function>', 'é'),
      maxLength: 12,
    });
    fc.assert(
      fc.property(value, value, (path, content) => {
        const args = JSON.stringify({ path, content });
        const calls = [['write_file', args]];
        expect(parse(qwenXmlParser, [xml(parameter('path', path) + parameter('content', content))]).toolCalls).toEqual(
          calls,
        );
        expect(
          parse(hermesParser, [`<tool_call>\n{"name": "write_file", "arguments": ${args}}\n</tool_call>`]).toolCalls,
        ).toEqual(calls);
        expect(
          parse(jsonActionParser, [`{"tool": "write_file", "arguments": ${args}}`], {
            ...state,
            expectsJsonAction: true,
          }).toolCalls,
        ).toEqual(calls);
      }),
    );
  });

  it('takes linear time for a long value', () => {
    const content = 'x</tool_call>'.repeat(2000);
    expect(parse(qwenXmlParser, [...xml(parameter('content', content))]).toolCalls).toEqual([
      ['write_file', JSON.stringify({ content })],
    ]);
  });
});
