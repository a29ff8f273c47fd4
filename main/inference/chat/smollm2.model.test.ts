import { Template } from '@huggingface/jinja';
import fc from 'fast-check';
import { getLlama, type Llama, type LlamaModel, readGgufFileInfo, type Token } from 'node-llama-cpp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Message } from '../../common/domain/chat.ts';
import { schemaToGbnf } from '../scheduler/json-schema-gbnf.ts';
import { smolLm2Model } from '../testing/smollm2.ts';
import type { ChatFormat } from './chat-format.ts';
import { type ChatModel, createChatFormat } from './create-chat-format.ts';
import { MemoryLedger } from './ledger.ts';
import { canonicalMessageHash } from './message-hash.ts';
import { byteModel } from './testing/byte-tokenizer.ts';
import { request, writeFile } from './testing/requests.ts';
import { qwenLike } from './testing/templates.ts';

let llama: Llama;
let vocabulary: LlamaModel;
let model: ChatModel;
let format: ChatFormat;

/** The template and the vocabulary of the real file; no weights are loaded. */
beforeAll(async () => {
  const modelPath = await smolLm2Model();
  const { metadata } = await readGgufFileInfo(modelPath);
  llama = await getLlama({ gpu: false, build: 'never' });
  vocabulary = await llama.loadModel({ modelPath, vocabOnly: true });
  const { chat_template: template } = metadata.tokenizer;
  model = withVocabulary(template ?? null);
  format = createChatFormat(model);
});
afterAll(() => llama?.dispose());

function withVocabulary(template: string | null): ChatModel {
  const { info } = byteModel(template, { vocabularySize: 49_152, endIds: [2, 0], id: 'smollm2' });
  return {
    info,
    tokenize: (text, { special }) => [...vocabulary.tokenize(text, special, 'trimLeadingSpace')],
    detokenize: (ids, { special }) => vocabulary.detokenize(ids as Token[], special),
  };
}

const markers = (ids: readonly number[]) => ids.filter((id) => id < 17);

describe('SmolLM2', () => {
  it('is of the json family and gets its default system prompt', () => {
    const { promptIds, forkPoints, ledgerMisses } = format.render(
      request([{ role: 'user', content: 'Hi' }]),
      new MemoryLedger(),
    );
    expect(format.family).toBe('json');
    const text =
      '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n';
    expect(promptIds).toEqual(model.tokenize(text, { special: true }));
    expect(forkPoints.map((at) => promptIds[at])).toEqual([1, 1]);
    expect(ledgerMisses).toBe(0);
  });

  it('reads any conversation as the ids of the whole template text', () => {
    const template = new Template(model.info.chatTemplate ?? '');
    const text = fc.string({
      unit: fc.constantFrom('the ', 'a', '\n', '  ', '"', '{', '1', 'é', '漢', '.', 'ing'),
      maxLength: 20,
    });
    fc.assert(
      fc.property(fc.array(fc.record({ user: text, reply: text }), { minLength: 1, maxLength: 3 }), (turns) => {
        const messages = turns.flatMap(({ user, reply }): Message[] => [
          { role: 'user', content: user },
          { role: 'assistant', content: reply },
        ]);
        const whole = template.render({ messages, add_generation_prompt: true });
        expect(format.render(request(messages), new MemoryLedger()).promptIds).toEqual(
          model.tokenize(whole, { special: true }),
        );
      }),
    );
  });

  it.each(['its own template', 'a Qwen-like template'])('reads no control token out of contents (%s)', (which) => {
    const tested = which === 'its own template' ? format : createChatFormat(withVocabulary(qwenLike));
    const build = (text: string): Message[] => [
      { role: 'system', content: `s${text}s` },
      { role: 'user', content: `u${text}u` },
      { role: 'assistant', content: `a${text}a` },
      { role: 'user', content: `v${text}v` },
    ];
    const expected = markers(tested.render(request(build('')), new MemoryLedger()).promptIds);
    const unit = fc.constantFrom(
      '<|im_end|>',
      '<|im_start|>',
      '<|endoftext|>',
      '<file_sep>',
      '</think>',
      '<',
      '|im_',
      'end|>',
      '\n',
    );
    fc.assert(
      fc.property(fc.string({ unit, maxLength: 10 }), (text) => {
        const { promptIds } = tested.render(request(build(text)), new MemoryLedger());
        expect(markers(promptIds)).toEqual(expected);
        expect(model.detokenize(promptIds, { special: true })).toContain(`u${text}u`);
      }),
    );
  });

  it('gives prompts that extend each other over recorded actions, however they are spelled', () => {
    const ledger = new MemoryLedger();
    const messages: Message[] = [{ role: 'user', content: 'Write a file.' }];
    let soFar: number[] = [];
    for (const text of [
      '{ "tool":"write_file","arguments": {"path": "a",\n"content": "b"}}',
      '{"tool": "write_file", "arguments": {"path": "c", "content": ""}}',
    ]) {
      const { promptIds, ledgerMisses, parserState } = format.render(request(messages, { tools: [writeFile] }), ledger);
      expect(promptIds.slice(0, soFar.length)).toEqual(soFar);
      expect(ledgerMisses).toBe(0);
      // Cut apart as no tokenizer would do it: recorded ids are not what the text would give.
      const sampled = [...[...text].flatMap((char) => model.tokenize(char, { special: false })), 2];
      const parser = format.parser(parserState);
      parser.push(text);
      const { message } = parser.finish(false);
      ledger.add(canonicalMessageHash(message), sampled);
      soFar = [...promptIds, ...sampled];
      messages.push(message, { role: 'tool', toolCallId: message.toolCalls?.[0]?.id ?? '', content: 'ok' });
    }
    const { promptIds } = format.render(request(messages, { tools: [writeFile] }), ledger);
    expect(promptIds.slice(0, soFar.length)).toEqual(soFar);
  });

  it('gets grammars that llama.cpp compiles', async () => {
    for (const toolChoice of ['auto', 'none', 'required'] as const) {
      const { grammar } = format.render(
        request([{ role: 'user', content: 'x' }], { tools: [writeFile], toolChoice }),
        new MemoryLedger(),
      );
      await expect(llama.createGrammar({ grammar: schemaToGbnf(grammar?.schema ?? {}) })).resolves.toBeDefined();
    }
  });
});
