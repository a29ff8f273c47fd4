import type { ModelInfo } from '../../model/served-model.ts';
import type { ChatModel } from '../create-chat-format.ts';

/** Control tokens are matched only when asked for; tags always are, as llama.cpp does with user-defined tokens. */
const controls = ['<|im_start|>', '<|im_end|>', '<|endoftext|>'];
const tags = ['<think>', '</think>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>'];
const spellings = [...controls, ...tags];
const escaped = (list: readonly string[]) => list.map((text) => text.replaceAll('|', '\\|')).join('|');

export const endId = 256 + controls.indexOf('<|im_end|>');
export const idOf = (spelling: string): number => 256 + spellings.indexOf(spelling);
export const isMarker = (id: number): boolean => id >= 256;

/** A vocabulary of 256 bytes and the markers of Qwen3, for tests whose expected ids can be written down. */
export function byteModel(chatTemplate: string | null, info: Partial<ModelInfo> = {}): ChatModel {
  return {
    info: {
      id: 'byte-model',
      path: '/nowhere/byte-model.gguf',
      sha256: '0'.repeat(64),
      adapterSha256: null,
      architecture: 'test',
      hybrid: false,
      chatTemplate,
      bosToken: null,
      eosToken: '<|im_end|>',
      endIds: [endId],
      addedBosId: null,
      vocabularySize: 256 + spellings.length,
      contextSize: 8192,
      sequences: 1,
      device: 'test',
      ...info,
    },
    tokenize: (text, { special }) =>
      text
        .split(new RegExp(`(${escaped(special ? spellings : tags)})`))
        .flatMap((part) => (spellings.includes(part) && (special || tags.includes(part)) ? [idOf(part)] : bytes(part))),
    detokenize: (ids, { special }) =>
      Buffer.concat(
        ids.map((id) => {
          if (id < 256) return Buffer.from([id]);
          const text = spellings[id - 256] ?? '';
          return Buffer.from(special || tags.includes(text) ? text : '');
        }),
      ).toString('utf8'),
  };
}

const bytes = (text: string): number[] => [...Buffer.from(text)];
