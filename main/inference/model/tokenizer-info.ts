import type { LlamaModel } from 'node-llama-cpp';
import type { ModelFile } from './model-file.ts';
import type { ModelInfo } from './served-model.ts';

/** What a model says of its tokenizer and template; known without its weights. */
export type TokenizerInfo = Pick<
  ModelInfo,
  'architecture' | 'chatTemplate' | 'bosToken' | 'eosToken' | 'endIds' | 'addedBosId' | 'vocabularySize'
>;

export function tokenizerInfo(file: ModelFile, model: LlamaModel): TokenizerInfo {
  const { tokens } = model;
  const template = file.info.metadata.tokenizer?.chat_template;
  const endIds: number[] = [];
  for (const id of model.iterateAllTokens()) if (model.isEogToken(id)) endIds.push(id);
  return {
    architecture: file.info.metadata.general.architecture,
    chatTemplate: typeof template === 'string' ? template : null,
    bosToken: tokens.bosString,
    eosToken: tokens.eosString,
    endIds,
    addedBosId: tokens.shouldPrependBosToken ? tokens.bos : null,
    vocabularySize: file.shape.vocabulary,
  };
}
