import { type LlamaGrammar, LlamaGrammarEvaluationState, type LlamaModel } from 'node-llama-cpp';
import { acceptGrammarToken } from './sequence-internals.ts';

/** The grammar of one request: from its start, or from after the first `afterId` (the end of a reasoning block). */
export class GrammarConstraint {
  readonly #options: { model: LlamaModel; grammar: LlamaGrammar; afterId: number | null };
  #state: LlamaGrammarEvaluationState | undefined;

  constructor(options: { model: LlamaModel; grammar: LlamaGrammar; afterId: number | null }) {
    this.#options = options;
    if (options.afterId === null) this.#start();
  }

  /** What the sampler applies to the next token. */
  get state(): LlamaGrammarEvaluationState | undefined {
    return this.#state;
  }

  /** An id was just sampled under `state`, which has accepted it already. */
  sampled(id: number): void {
    if (this.#state === undefined && id === this.#options.afterId) this.#start();
  }

  /** An id was sampled by an earlier process: the state has to be told. */
  replay(id: number): void {
    if (this.#state === undefined) this.sampled(id);
    else if (!this.#options.model.isEogToken(id as never)) acceptGrammarToken(this.#options.model, this.#state, id);
  }

  #start(): void {
    this.#state = new LlamaGrammarEvaluationState({ model: this.#options.model, grammar: this.#options.grammar });
  }
}
