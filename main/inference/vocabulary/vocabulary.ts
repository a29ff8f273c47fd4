import { createHash } from 'node:crypto';
import type { LlamaModel, Token } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { VocabularyStatus } from '../../common/protocol/vocabulary.ts';
import type { ChatModel } from '../chat/create-chat-format.ts';
import { openDevice } from '../model/device.ts';
import { readModelFile } from '../model/model-file.ts';
import { tokenizerInfo } from '../model/tokenizer-info.ts';

/** A model's tokenizer and template. No weights are read and no device is opened. */
export interface Vocabulary {
  readonly model: ChatModel;
  readonly status: Pick<VocabularyStatus, 'size' | 'sha256'>;
  dispose(): Promise<void>;
}

/** Errors: those of a file that is no model; `invalid_input` when llama.cpp does not know its vocabulary. */
export async function openVocabulary(
  { path, modelId }: { path: string; modelId: string },
  logger: Logger,
): Promise<Vocabulary> {
  const file = await readModelFile(path);
  const tokens = file.info.metadata.tokenizer?.ggml?.tokens;
  if (!Array.isArray(tokens))
    throw new MassError('invalid_input', `${path} has no vocabulary; choose another model file.`);
  const device = await openDevice('off', logger);
  let vocabulary: LlamaModel;
  try {
    vocabulary = await device.llama.loadModel({ modelPath: path, vocabOnly: true });
  } catch (cause) {
    await device.llama.dispose();
    throw new MassError(
      'invalid_input',
      `The vocabulary of ${path} cannot be loaded; check its hash or fetch it again.`,
      {
        cause,
      },
    );
  }
  const model: ChatModel = {
    info: {
      ...tokenizerInfo(file, vocabulary),
      id: modelId,
      path,
      sha256: '',
      adapterSha256: null,
      hybrid: false,
      contextSize: 0,
      sequences: 0,
      device: 'none',
    },
    tokenize: (text, { special }) => vocabulary.tokenize(text, special),
    detokenize: (ids, { special }) => vocabulary.detokenize(ids as readonly Token[], special),
  };
  return {
    model,
    status: { size: tokens.length, sha256: hashTokens(tokens) },
    dispose: async () => {
      await vocabulary.dispose();
      await device.llama.dispose();
    },
  };
}

function hashTokens(tokens: readonly unknown[]): string {
  const hash = createHash('sha256');
  const length = Buffer.alloc(4);
  for (const token of tokens) {
    const bytes = Buffer.from(String(token), 'utf8');
    length.writeUInt32LE(bytes.length);
    hash.update(length);
    hash.update(bytes);
  }
  return hash.digest('hex');
}
