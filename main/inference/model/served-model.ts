/**
 * What the endpoint needs of a loaded model: text <-> tokens, and token generation over scheduled sequences.
 * The chat format and the HTTP server are written against this, never against node-llama-cpp.
 */
export interface ServedModel {
  readonly info: ModelInfo;
  /** Ids of `text`. With `special`, control-token spellings such as `<|im_end|>` become their single ids; without, they stay plain text. No BOS is added. */
  tokenize(text: string, options: { special: boolean }): number[];
  /** Text of `ids`; control tokens are spelled out when `special`. Invalid UTF-8 becomes U+FFFD. */
  detokenize(ids: readonly number[], options: { special: boolean }): string;
  generate(request: GenerateRequest): Promise<GenerateResult>;
  /**
   * Natural logarithms of the probabilities of every next id, at temperature 1, after each of the last `positions` ids of
   * the prompt, in its order. A probability below the smallest float32 counts as that.
   */
  scoreNext(promptIds: readonly number[], positions: number): Promise<Float32Array[]>;
  /** Compiles a JSON Schema to a grammar; throws MassError invalid_input with the reason when it cannot be. */
  checkSchema(schema: JsonSchema): Promise<void>;
  metrics(): SchedulerMetrics;
  dispose(): Promise<void>;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

export interface ModelInfo {
  /** registry id, and the `model` of the OpenAI surface */
  readonly id: string;
  readonly path: string;
  readonly sha256: string;
  readonly adapterSha256: string | null;
  readonly architecture: string;
  readonly hybrid: boolean;
  readonly chatTemplate: string | null;
  readonly bosToken: string | null;
  readonly eosToken: string | null;
  /** ids that end a turn (end of text, end of turn) */
  readonly endIds: readonly number[];
  /** the BOS id when the model's tokenizer adds one to a prompt by itself, else null */
  readonly addedBosId: number | null;
  readonly vocabularySize: number;
  readonly contextSize: number;
  readonly sequences: number;
  readonly device: string;
}

export interface GenerateRequest {
  readonly promptIds: readonly number[];
  /** Tokens already sampled for this request before a crash: evaluated as context, returned as part of the result. */
  readonly resumeIds?: readonly number[];
  /** Thread of the conversation; only a hint for which sequence to prefer. */
  readonly affinity?: string;
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
  readonly seed: number;
  readonly maxTokens: number;
  /** Ids that end the completion, besides the model's own end ids. They are part of the sampled ids. */
  readonly stopIds?: readonly number[];
  /** Texts that end the completion; the text is cut before the match, the sampled ids are kept whole. */
  readonly stopTexts?: readonly string[];
  /** JSON Schema enforced by grammar from the start, or after the first occurrence of `afterId`. */
  readonly grammar?: { readonly schema: JsonSchema; readonly afterId: number | null };
  /** Prompt lengths at which other requests will branch (end of system+tools, end of a shared submission). */
  readonly forkPoints?: readonly number[];
  /** Lower runs first; equal priorities share fairly. */
  readonly priority?: number;
  readonly onTokens?: (ids: readonly number[]) => void;
  readonly signal?: AbortSignal;
}

export interface GenerateResult {
  /** Every sampled id in order, resumed ones first, the ending id last when one was sampled. */
  readonly sampledIds: readonly number[];
  /** `stop`: an end id or stop text; `length`: maxTokens or the context's end. */
  readonly finishReason: 'stop' | 'length';
  /** The stop text that matched, if any. */
  readonly stopText: string | null;
  readonly cachedTokens: number;
  readonly evaluatedTokens: number;
  readonly queueMs: number;
  readonly prefillMs: number;
  readonly decodeMs: number;
}

/** Counters since load; times in milliseconds. */
export interface SchedulerMetrics {
  readonly queued: number;
  readonly running: number;
  readonly completed: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly evaluatedTokens: number;
  readonly generatedTokens: number;
  readonly checkpointBytes: number;
  /** decoded batches by number of sequences in them */
  readonly batchSizes: Readonly<Record<number, number>>;
}
