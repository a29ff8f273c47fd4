import { setTimeout as sleep } from 'node:timers/promises';
import { cancelled, MassError } from '../../common/base/errors.ts';
import type { GenerateRequest, GenerateResult, JsonSchema, ModelInfo, ServedModel } from '../model/served-model.ts';

/** Ids 0-255 are bytes; these follow. The tool-call tags are plain text, as in several families. */
const controlTokens = ['<|im_start|>', '<|im_end|>', '<think>', '</think>'] as const;
const controlPattern = new RegExp(controlTokens.map((text) => text.replaceAll('|', '\\|')).join('|'), 'g');
export const endId = 257;

export interface ScriptedModelOptions {
  /** What the model says to a prompt (control tokens spelled out); the end token is added. */
  readonly answer: (promptText: string, request: GenerateRequest) => string;
  /** Milliseconds before the first token and between tokens. */
  readonly prefillMs?: number;
  readonly tokenMs?: number;
  readonly sequences?: number;
  readonly contextSize?: number;
  readonly id?: string;
  readonly chatTemplate?: string;
}

export interface ScriptedCounts {
  started: number;
  completed: number;
  aborted: number;
  running: number;
  queued: number;
  sampled: number;
}

/**
 * A model whose words are a function of the prompt: byte-level vocabulary, a fixed number of sequences with a queue,
 * controllable speed. The same request always gives the same ids, resumed or not.
 */
export class ScriptedModel implements ServedModel {
  readonly counts: ScriptedCounts = { started: 0, completed: 0, aborted: 0, running: 0, queued: 0, sampled: 0 };
  readonly requests: GenerateRequest[] = [];
  readonly info: ModelInfo;
  readonly #options: ScriptedModelOptions;
  readonly #waiting: (() => void)[] = [];
  readonly #threads = new Map<string, readonly number[]>();

  constructor(options: ScriptedModelOptions) {
    this.#options = options;
    this.info = {
      id: options.id ?? 'scripted',
      path: '/nowhere/scripted.gguf',
      sha256: 'a'.repeat(64),
      adapterSha256: null,
      architecture: 'scripted',
      hybrid: false,
      chatTemplate: options.chatTemplate ?? null,
      bosToken: null,
      eosToken: '<|im_end|>',
      endIds: [endId],
      addedBosId: null,
      vocabularySize: 256 + controlTokens.length,
      contextSize: options.contextSize ?? 100_000,
      sequences: options.sequences ?? 4,
      device: 'scripted',
    };
  }

  tokenize(text: string, { special }: { special: boolean }): number[] {
    const ids: number[] = [];
    let at = 0;
    for (const match of special ? text.matchAll(controlPattern) : []) {
      for (const byte of Buffer.from(text.slice(at, match.index))) ids.push(byte);
      ids.push(256 + controlTokens.indexOf(match[0] as (typeof controlTokens)[number]));
      at = match.index + match[0].length;
    }
    for (const byte of Buffer.from(text.slice(at))) ids.push(byte);
    return ids;
  }

  detokenize(ids: readonly number[], { special }: { special: boolean }): string {
    const bytes = ids.flatMap((id) =>
      id < 256 ? [id] : special ? [...Buffer.from(controlTokens[id - 256] ?? '')] : [],
    );
    return Buffer.from(bytes).toString('utf8');
  }

  /** The id that follows in the prompt (the end token after the last) has half of the probability, the rest share the other half. */
  async scoreNext(promptIds: readonly number[], positions: number): Promise<Float32Array[]> {
    const others = this.info.vocabularySize - 1;
    return [...promptIds.slice(1), endId].slice(-positions).map((next) => {
      const row = new Float32Array(this.info.vocabularySize).fill(Math.log(0.5 / others));
      row[next] = Math.log(0.5);
      return row;
    });
  }

  checkSchema(schema: JsonSchema): Promise<void> {
    if (schema.type !== 'unsupported') return Promise.resolve();
    return Promise.reject(new MassError('invalid_input', 'the type "unsupported" has no grammar'));
  }

  async generate(request: GenerateRequest): Promise<GenerateResult> {
    this.requests.push(request);
    const queuedAt = Date.now();
    await this.#acquire(request.signal);
    const startedAt = Date.now();
    this.counts.started++;
    try {
      const result = await this.#sample(request, startedAt - queuedAt);
      this.counts.completed++;
      return result;
    } catch (error) {
      this.counts.aborted++;
      throw error;
    } finally {
      this.counts.running--;
      this.#waiting.shift()?.();
    }
  }

  metrics() {
    return {
      queued: this.counts.queued,
      running: this.counts.running,
      completed: this.counts.completed,
      promptTokens: 0,
      cachedTokens: 0,
      evaluatedTokens: 0,
      generatedTokens: this.counts.sampled,
      checkpointBytes: 0,
      batchSizes: {},
    };
  }

  dispose(): Promise<void> {
    return Promise.resolve();
  }

  async #acquire(signal: AbortSignal | undefined): Promise<void> {
    if (this.counts.running >= this.info.sequences) {
      this.counts.queued++;
      try {
        await new Promise<void>((resolve, reject) => {
          this.#waiting.push(resolve);
          signal?.addEventListener('abort', () => {
            const at = this.#waiting.indexOf(resolve);
            if (at !== -1) this.#waiting.splice(at, 1);
            reject(cancelled());
          });
        });
      } finally {
        this.counts.queued--;
      }
    }
    this.counts.running++;
  }

  async #sample(request: GenerateRequest, queueMs: number): Promise<GenerateResult> {
    const { prefillMs = 0, tokenMs = 0, answer } = this.#options;
    const { promptIds, resumeIds = [], stopTexts = [], signal } = request;
    await pause(prefillMs, signal);
    const script = [
      ...this.tokenize(answer(this.detokenize(promptIds, { special: true }), request), { special: true }),
      endId,
    ];
    const sampledIds = [...resumeIds];
    const isEnd = (id: number) => id === endId || (request.stopIds ?? []).includes(id);
    const matchedStop = () => stopTexts.find((stop) => this.detokenize(sampledIds, { special: true }).includes(stop));
    let stopText = matchedStop() ?? null;
    let ended = sampledIds.some(isEnd);
    while (!ended && stopText === null && sampledIds.length < request.maxTokens) {
      await pause(tokenMs, signal);
      const id = script[sampledIds.length] ?? endId;
      sampledIds.push(id);
      this.counts.sampled++;
      request.onTokens?.([id]);
      ended = isEnd(id);
      stopText = matchedStop() ?? null;
    }
    return {
      sampledIds,
      finishReason: ended || stopText !== null ? 'stop' : 'length',
      stopText,
      ...this.#cache(request, sampledIds),
      queueMs,
      prefillMs,
      decodeMs: 0,
    };
  }

  /** A cache with one sequence per thread. */
  #cache(request: GenerateRequest, sampledIds: readonly number[]) {
    const { promptIds, affinity = '' } = request;
    const held = this.#threads.get(affinity) ?? [];
    let cachedTokens = 0;
    while (cachedTokens < promptIds.length - 1 && held[cachedTokens] === promptIds[cachedTokens]) cachedTokens++;
    this.#threads.set(affinity, [...promptIds, ...sampledIds]);
    return { cachedTokens, evaluatedTokens: promptIds.length - cachedTokens };
  }
}

/** Yields to the event loop even for 0 ms. */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sleep(ms, undefined, signal === undefined ? {} : { signal });
  } catch (error) {
    throw new MassError('cancelled', 'The generation was aborted.', { cause: error });
  }
}
