import { Template } from '@huggingface/jinja';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { AssistantMessage, Message } from '../../common/domain/chat.ts';
import type { ChatFormat, ChatRequest } from './chat-format.ts';
import { type ChatModel, createChatFormat } from './create-chat-format.ts';
import { MemoryLedger } from './ledger.ts';
import { canonicalMessageHash } from './message-hash.ts';
import { byteModel, endId, idOf, isMarker } from './testing/byte-tokenizer.ts';
import { request, writeFile } from './testing/requests.ts';
import { chatMl, hermesLike, qwenLike } from './testing/templates.ts';

const templates = { chatMl, qwenLike, hermesLike };
const spelled = (model: ChatModel, ids: readonly number[]) => model.detokenize(ids, { special: true });

/** What the template says, without marks: contents are ordinary in these tests. */
function direct(template: string, { messages, tools, thinking, templateVariables }: ChatRequest): string {
  return new Template(template).render({
    ...templateVariables,
    messages: messages.map((message) =>
      message.role !== 'assistant'
        ? message
        : {
            role: 'assistant',
            content: message.content,
            reasoning_content: message.reasoning,
            tool_calls: message.toolCalls?.map((call) => ({
              id: call.id,
              type: 'function',
              function: { name: call.name, arguments: JSON.parse(call.arguments) },
            })),
          },
    ),
    tools: tools.length === 0 ? null : tools.map((tool) => ({ type: 'function', function: tool })),
    enable_thinking: thinking,
    add_generation_prompt: true,
  });
}

/** Samples `text` as the answer to a request: the ids, the message, the ledger's entry. */
function answer(
  setup: { model: ChatModel; format: ChatFormat; ledger: MemoryLedger },
  asked: ChatRequest,
  text: string,
) {
  const rendered = setup.format.render(asked, setup.ledger);
  const parser = setup.format.parser(rendered.parserState);
  parser.push(text);
  const { message } = parser.finish(false);
  const sampledIds = [...setup.model.tokenize(text, { special: true }), endId];
  setup.ledger.add(canonicalMessageHash(message), sampledIds);
  return { message, rendered, soFar: [...rendered.promptIds, ...sampledIds] };
}

function setUp(template: string) {
  const model = byteModel(template);
  return { model, format: createChatFormat(model), ledger: new MemoryLedger() };
}

const calling: AssistantMessage = {
  role: 'assistant',
  content: 'First the file.',
  reasoning: 'A file is asked for.',
  toolCalls: [
    { id: 'c1', name: 'write_file', arguments: '{"path":"a \\"b\\".txt","content":"x\\ny","lines":2}' },
    { id: 'c2', name: 'write_file', arguments: '{"path":"b","content":"","tags":["<a>","é"]}' },
  ],
};
const conversation: Message[] = [
  { role: 'system', content: '\nBe brief.\n' },
  { role: 'user', content: '  Write\n\ntwo files.  ' },
  calling,
  { role: 'tool', toolCallId: 'c1', content: 'done\n' },
  { role: 'tool', toolCallId: 'c2', content: '{"ok": true}' },
];

describe('a prompt without recorded ids', () => {
  it.each(['qwenLike', 'hermesLike'] as const)('has the ids of the whole template text (%s)', (name) => {
    const { model, format, ledger } = setUp(templates[name]);
    for (const thinking of [true, false]) {
      for (const messages of [conversation.slice(0, 2), conversation, [...conversation, calling, conversation[1]!]]) {
        const asked = request(messages, { tools: [writeFile], thinking });
        const rendered = format.render(asked, ledger);
        expect(spelled(model, rendered.promptIds)).toBe(direct(templates[name], asked));
        expect(rendered.promptIds).toEqual(model.tokenize(direct(templates[name], asked), { special: true }));
        expect(rendered.ledgerMisses).toBe(messages.filter(({ role }) => role === 'assistant').length);
      }
    }
  });

  it('equals the template for any ordinary conversation', () => {
    const { model, format, ledger } = setUp(qwenLike);
    const text = fc.string({ unit: fc.constantFrom('a', 'é', ' ', '\n', '"', '\\', '{', '漢', '<', '>', '/') });
    const turn = fc.record({ user: text, answer: text });
    fc.assert(
      fc.property(fc.array(turn, { minLength: 1, maxLength: 3 }), ([...turns]) => {
        const messages = turns.flatMap(({ user, answer: content }): Message[] => [
          { role: 'user', content: user },
          { role: 'assistant', content },
        ]);
        const asked = request(messages);
        expect(spelled(model, format.render(asked, ledger).promptIds)).toBe(direct(qwenLike, asked));
      }),
      { numRuns: 50 },
    );
  });
});

describe('recorded ids', () => {
  const call =
    '<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nx\n</parameter>\n</function>\n</tool_call>';
  const result = (message: AssistantMessage): Message => ({
    role: 'tool',
    toolCallId: message.toolCalls?.[0]?.id ?? '',
    content: 'ok',
  });

  it('let every prompt of a tool loop begin with all that came before it', () => {
    for (const thinking of [true, false]) {
      const setup = setUp(qwenLike);
      const messages: Message[] = [{ role: 'user', content: 'Write a.' }];
      let soFar: number[] = [];
      // The odd spacing is the model's: a template would not write it so.
      for (const text of [
        `${thinking ? 'Hm.\n\n</think>' : ''}Now.${call}`,
        `${thinking ? '</think>\n\n\n' : ''}${call}`,
      ]) {
        const made = answer(setup, request(messages, { tools: [writeFile], thinking }), text);
        expect(made.rendered.promptIds.slice(0, soFar.length)).toEqual(soFar);
        expect(made.rendered.ledgerMisses).toBe(0);
        soFar = made.soFar;
        messages.push(made.message, result(made.message));
      }
      const last = setup.format.render(request(messages, { tools: [writeFile], thinking }), setup.ledger);
      expect(last.promptIds.slice(0, soFar.length)).toEqual(soFar);
      expect(spelled(setup.model, last.promptIds.slice(soFar.length))).toBe(
        `\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n${thinking ? '' : '\n</think>\n\n'}`,
      );
    }
  });

  it('lose their reasoning block where a later user message makes the template drop it', () => {
    const setup = setUp(qwenLike);
    const first: Message[] = [{ role: 'user', content: 'One?' }];
    const { message } = answer(setup, request(first), 'Secret.\n</think>\n\nYes,  one.');
    const later = request([...first, message, { role: 'user', content: 'Two?' }]);
    expect(spelled(setup.model, setup.format.render(later, setup.ledger).promptIds)).toBe(
      '<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nYes,  one.<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n<think>\n',
    );
    const kept = setup.format.render({ ...later, templateVariables: { preserve_thinking: true } }, setup.ledger);
    expect(spelled(setup.model, kept.promptIds)).toContain(
      'assistant\n<think>\nSecret.\n</think>\n\nYes,  one.<|im_end|>\n',
    );
  });

  it('keep the ending id exactly once, sampled or not', () => {
    for (const ending of [[endId], []]) {
      const setup = setUp(chatMl);
      const message: AssistantMessage = { role: 'assistant', content: 'Hi' };
      setup.ledger.add(canonicalMessageHash(message), [72, 105, ...ending]);
      const { promptIds, ledgerMisses } = setup.format.render(
        request([{ role: 'user', content: 'x' }, message]),
        setup.ledger,
      );
      expect(ledgerMisses).toBe(0);
      expect(spelled(setup.model, promptIds)).toBe(
        '<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>assistant\n',
      );
    }
  });

  it('of reasoning that was cut off by length stay an open block', () => {
    const setup = setUp(qwenLike);
    const message: AssistantMessage = { role: 'assistant', content: '' };
    setup.ledger.add(canonicalMessageHash(message), setup.model.tokenize('So far', { special: false }));
    const asked = request([{ role: 'user', content: 'x' }, message]);
    expect(spelled(setup.model, setup.format.render(asked, setup.ledger).promptIds)).toContain(
      '<|im_start|>assistant\n<think>\nSo far<|im_end|>\n',
    );
  });

  it('of a required call get back the beginning that the prompt supplied', () => {
    const setup = setUp(qwenLike);
    const messages: Message[] = [{ role: 'user', content: 'Write a.' }];
    const asked = request(messages, { tools: [writeFile], toolChoice: 'required' });
    const made = answer(setup, asked, call.slice('<tool_call>\n'.length));
    expect(spelled(setup.model, made.rendered.promptIds)).toMatch(/assistant\n<think>\n\n<\/think>\n\n<tool_call>\n$/);
    expect(made.message.toolCalls?.map(({ name, arguments: args }) => [name, args])).toEqual([
      ['write_file', '{"path":"a","content":"x"}'],
    ]);
    const next = request([...messages, made.message, result(made.message)], { tools: [writeFile] });
    expect(setup.format.render(next, setup.ledger).promptIds.slice(0, made.soFar.length)).toEqual(made.soFar);
  });

  it.each([
    [
      'qwenLike',
      'read_file',
      '<tool_call>\n<function=read_file>\n',
      '<parameter=path>\na</tool_call>b\n</parameter>\n</function>\n</tool_call>',
    ],
    [
      'hermesLike',
      'read_file',
      '<tool_call>\n{"name": "read_file", "arguments":',
      ' {"path": "a</tool_call>b"}}\n</tool_call>',
    ],
    [
      'hermesLike',
      null,
      '<tool_call>\n',
      '{"name": "read_file", "arguments": {"path": "a</tool_call>b"}}\n</tool_call>',
    ],
  ] as const)('of a call of a named tool get back its name: %s %s', (template, name, supplied, sampled) => {
    const setup = setUp(templates[template]);
    const messages: Message[] = [{ role: 'user', content: 'Look.' }];
    const tools = [writeFile, { ...writeFile, name: 'read_file' }];
    const toolChoice = name === null ? 'required' : { name };
    const made = answer(setup, request(messages, { tools, toolChoice }), sampled);
    expect(spelled(setup.model, made.rendered.promptIds).endsWith(supplied)).toBe(true);
    expect(made.message.toolCalls?.map((made) => [made.name, made.arguments])).toEqual([
      ['read_file', '{"path":"a</tool_call>b"}'],
    ]);
    const next = request([...messages, made.message, result(made.message)], { tools });
    expect(setup.format.render(next, setup.ledger).promptIds.slice(0, made.soFar.length)).toEqual(made.soFar);
  });

  it('of a model that opens its reasoning itself are spliced after the role header', () => {
    const setup = setUp(hermesLike);
    const messages: Message[] = [{ role: 'user', content: 'Write a.' }];
    const text =
      '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "write_file", "arguments": {"path": "a"}}\n</tool_call>';
    const made = answer(setup, request(messages, { tools: [writeFile] }), text);
    expect(made.message).toMatchObject({ content: '', reasoning: 'Hm.', toolCalls: [{ arguments: '{"path":"a"}' }] });
    const next = request([...messages, made.message, result(made.message)], { tools: [writeFile] });
    expect(setup.format.render(next, setup.ledger).promptIds.slice(0, made.soFar.length)).toEqual(made.soFar);
  });

  it.each([
    ['qwenLike', true, 'first </think>\n\nsaid</think>second', 'said</think>second'],
    ['qwenLike', false, 'said</think>second', 'said</think>second'],
    ['hermesLike', true, '<think>\nfirst\n</think>\n\nsaid</think>second', 'said</think>second'],
    ['hermesLike', false, 'said</think>second', 'said</think>second'],
  ] as const)('keep a </think> that was said: %s, thinking %s', (name, thinking, text, said) => {
    const setup = setUp(templates[name]);
    const asked: Message[] = [{ role: 'user', content: 'u' }];
    const { message, soFar } = answer(setup, request(asked, { thinking }), text);
    expect(message.content).toBe(said);
    const prompt = (next: Message) =>
      setup.format.render(request([...asked, message, next], { thinking }), setup.ledger).promptIds;
    expect(prompt({ role: 'tool', toolCallId: 'c', content: 'r' }).slice(0, soFar.length)).toEqual(soFar);
    expect(spelled(setup.model, prompt({ role: 'user', content: 'v' }))).toContain(
      `<|im_start|>assistant\n${said}<|im_end|>`,
    );
  });

  it('of a model without reasoning stay whole where it says </think>', () => {
    const setup = setUp(chatMl);
    const asked: Message[] = [{ role: 'user', content: 'u' }];
    const { message, soFar } = answer(setup, request(asked), 'first</think>second');
    const next = setup.format.render(request([...asked, message, { role: 'user', content: 'v' }]), setup.ledger);
    expect(next.promptIds.slice(0, soFar.length)).toEqual(soFar);
  });
});

describe('text that spells markers', () => {
  const hostile = fc.string({
    unit: fc.constantFrom(
      '<|im_end|>',
      '<|im_start|>',
      '</think>',
      '<tool_call>',
      '<tool_response>',
      '<',
      '/think>',
      '|im_end|>',
      'a',
      '\n',
    ),
    maxLength: 12,
  });

  it.each(Object.keys(templates) as (keyof typeof templates)[])('never becomes one (%s)', (name) => {
    const { model, format, ledger } = setUp(templates[name]);
    const build = (text: string): ChatRequest =>
      request(
        [
          { role: 'system', content: `s${text}s` },
          { role: 'user', content: `u${text}u` },
          { role: 'assistant', content: `a${text}a`, reasoning: `r${text}r` },
          { role: 'tool', toolCallId: 'c', content: `t${text}t` },
        ],
        { tools: name === 'chatMl' ? [] : [{ ...writeFile, description: `d${text}d` }] },
      );
    const expected = format.render(build(''), ledger).promptIds.filter(isMarker);
    fc.assert(
      fc.property(hostile, (text) => {
        const { promptIds } = format.render(build(text), ledger);
        expect(promptIds.filter(isMarker)).toEqual(expected);
        expect(spelled(model, promptIds)).toContain(`u${text}u`);
      }),
      { numRuns: 60 },
    );
  });

  it('in call arguments of an unrecorded turn stays text', () => {
    const { model, format, ledger } = setUp(hermesLike);
    const message: AssistantMessage = {
      role: 'assistant',
      content: '',
      toolCalls: [{ id: 'c', name: 'write_file', arguments: JSON.stringify({ path: '"</think>', '<|im_end|>': 1 }) }],
    };
    const { promptIds } = format.render(
      request([{ role: 'user', content: 'x' }, message], { tools: [writeFile] }),
      ledger,
    );
    expect(promptIds.filter((id) => id === idOf('<|im_end|>'))).toHaveLength(3);
    expect(spelled(model, promptIds)).toContain('{"path": "\\"</think>", "<|im_end|>": 1}');
  });

  it('in template variables is refused', () => {
    const { format, ledger } = setUp(chatMl);
    const asked = request([{ role: 'user', content: 'x' }], { templateVariables: { note: { a: ['<|im_end|>'] } } });
    expect(() => format.render(asked, ledger)).toThrow(/control tokens/);
  });
});

describe('fork points', () => {
  it('are the first user message, the end of the shared prefix and the end of the history', () => {
    const { model, format, ledger } = setUp(qwenLike);
    const messages: Message[] = [
      { role: 'system', content: 'S' },
      { role: 'user', content: 'Shared text. Own text.' },
    ];
    const { promptIds, forkPoints } = format.render(request(messages, { sharedPrefix: 'Shared text.' }), ledger);
    expect(forkPoints.map((at) => spelled(model, promptIds.slice(0, at)))).toEqual([
      '<|im_start|>system\nS<|im_end|>\n',
      '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nShared text.',
      '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nShared text. Own text.<|im_end|>\n',
    ]);
  });

  it('a shared prefix that is no prefix is refused', () => {
    const { format, ledger } = setUp(chatMl);
    expect(() => format.render(request([{ role: 'user', content: 'x' }], { sharedPrefix: 'y' }), ledger)).toThrow(
      /beginning/,
    );
  });
});

describe('the beginnings of messages', () => {
  const call = (id: string) => ({ id, name: 'write_file', arguments: '{"path":"a","content":"b"}' });
  const messages: Message[] = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Write <|im_end|> twice.' },
    { role: 'assistant', content: '', toolCalls: [call('c1'), call('c2')] },
    { role: 'tool', toolCallId: 'c1', content: 'done' },
    { role: 'tool', toolCallId: 'c2', content: 'done' },
    { role: 'assistant', content: 'Both.' },
    { role: 'user', content: 'Thanks.' },
  ];
  const pieces = (template: string, asked: ChatRequest): (string | null)[] => {
    const { model, format, ledger } = setUp(template);
    const { promptIds, messageStarts } = format.render(asked, ledger);
    return messageStarts.map((start, i) => {
      const end = messageStarts.slice(i + 1).find((next) => next !== null) ?? promptIds.length;
      return start === null ? null : spelled(model, promptIds.slice(start, end));
    });
  };

  it('lie before the role header, with the results of one turn together', () => {
    const [system, ...rest] = pieces(qwenLike, request(messages, { tools: [writeFile] }));
    expect(system).toMatch(/^<\|im_start\|>system\nTools:.*Be brief\.<\|im_end\|>\n$/s);
    const written =
      '<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</parameter>\n</function>\n</tool_call>';
    const result = '\n<tool_response>\ndone\n</tool_response>';
    expect(rest).toEqual([
      '<|im_start|>user\nWrite <|im_end|> twice.<|im_end|>\n',
      `<|im_start|>assistant\n${written}\n${written}<|im_end|>\n`,
      `<|im_start|>user${result}${result}<|im_end|>\n`,
      null,
      '<|im_start|>assistant\nBoth.<|im_end|>\n',
      '<|im_start|>user\nThanks.<|im_end|>\n',
      '<|im_start|>assistant\n<think>\n',
    ]);
  });

  it('count the messages of the request where the format makes other turns of them', () => {
    const texts = pieces(chatMl, request(messages, { tools: [writeFile] }));
    expect(texts.map((text) => (text === null ? null : text.slice(0, 22)))).toEqual([
      '<|im_start|>system\nBe ',
      '<|im_start|>user\nWrite',
      '<|im_start|>assistant\n',
      expect.stringMatching(/^<\|im_start\|>user\n/),
      null,
      '<|im_start|>assistant\n',
      '<|im_start|>user\nThank',
      '<|im_start|>assistant\n',
    ]);
  });

  it.each(Object.entries(templates))('are the same with recorded answers: %s', (_name, template) => {
    const { format, ledger, model } = setUp(template);
    const tools = [writeFile];
    const asked = request(messages.slice(0, 2), { tools });
    const first = answer({ model, format, ledger }, asked, 'A short answer.');
    const more: Message = { role: 'user', content: 'More.' };
    const next = format.render(request([...asked.messages, first.message, more], { tools }), ledger);
    const [system, user, assistant, second, end] = next.messageStarts;
    expect(system).toBe(0);
    for (const at of [user, assistant, second]) expect(next.promptIds[at ?? 0]).toBe(idOf('<|im_start|>'));
    expect(first.rendered.messageStarts).toEqual([0, user, assistant]);
    expect(end).toBe(next.forkPoints.at(-1));
  });
});
