import type { LearnRequest, Rendered, RenderRequest, VocabularyStatus } from '../../common/protocol/vocabulary.ts';
import type { ChatModel } from '../chat/create-chat-format.ts';
import { Conversations } from '../vocabulary/conversations.ts';

/** What a vocabulary process does, in this process; `tokenize` gives the ids that a model would sample for a text. */
export function inProcessVocabulary(model: ChatModel) {
  const conversations = new Conversations(model);
  const status: VocabularyStatus = {
    size: model.info.vocabularySize,
    sha256: '0'.repeat(64),
    family: conversations.family,
  };
  return {
    status,
    learn: async (request: LearnRequest): Promise<readonly number[]> => conversations.learn(request),
    render: async (request: RenderRequest): Promise<Rendered> => conversations.render(request),
    spell: async (pieces: readonly Uint32Array[]): Promise<readonly string[]> => conversations.spell(pieces),
    forget: async (owner: string): Promise<void> => conversations.forget(owner),
    dispose: async (): Promise<void> => undefined,
    tokenize: (text: string): Uint32Array => Uint32Array.from(model.tokenize(text, { special: true })),
  };
}
