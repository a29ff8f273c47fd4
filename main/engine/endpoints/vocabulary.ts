import type { AsyncDisposable } from '../../common/base/disposable.ts';
import type { LearnRequest, Rendered, RenderRequest, VocabularyStatus } from '../../common/protocol/vocabulary.ts';

/**
 * A model's tokenizer and chat template, without the model. Errors of every call: MassError `invalid_input` for a
 * conversation the template refuses, `infrastructure` when the process behind it ended.
 */
export interface Vocabulary extends AsyncDisposable {
  readonly status: VocabularyStatus;
  /** Tells the answers of an owner, in the order of recording; returns the indexes of those whose ids spell something else. */
  learn(request: LearnRequest): Promise<readonly number[]>;
  /** The prompt of a conversation, in which answers that are known appear as they were sampled. */
  render(request: RenderRequest): Promise<Rendered>;
  /** Text of token ids; control tokens are spelled out, invalid UTF-8 becomes U+FFFD. */
  spell(pieces: readonly Uint32Array[]): Promise<readonly string[]>;
  forget(owner: string): Promise<void>;
}
