import type { Llama, LlamaGrammar } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { JsonSchema } from '../model/served-model.ts';
import { schemaToGbnf } from './json-schema-gbnf.ts';

/** Distinct schemas in use at once: tools, contracts, verdicts. Compiling takes milliseconds, so the bound can be small. */
const CACHED = 64;

/** Compiles JSON Schemas to grammars, remembering the recent ones. */
export class GrammarCompiler {
  readonly #llama: Llama;
  readonly #cache = new Map<string, LlamaGrammar>();

  constructor(llama: Llama) {
    this.#llama = llama;
  }

  /** Throws MassError invalid_input that names the place and the keyword. */
  async compile(schema: JsonSchema): Promise<LlamaGrammar> {
    const key = JSON.stringify(schema);
    const known = this.#cache.get(key);
    if (known !== undefined) {
      this.#cache.delete(key);
      this.#cache.set(key, known);
      return known;
    }
    const source = schemaToGbnf(schema);
    let grammar: LlamaGrammar;
    try {
      grammar = await this.#llama.createGrammar({ grammar: source });
    } catch (error) {
      throw new MassError(
        'invalid_input',
        'The schema is too large to be enforced; lower its length and item limits.',
        {
          cause: error,
        },
      );
    }
    this.#cache.set(key, grammar);
    const oldest = this.#cache.keys().next().value;
    if (this.#cache.size > CACHED && oldest !== undefined) this.#cache.delete(oldest);
    return grammar;
  }
}
