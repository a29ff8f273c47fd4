import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, FinishReason, Sampling, Usage } from '../../common/domain/chat.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import type { ChatDelta, ChatFormat, RenderedPrompt } from '../chat/chat-format.ts';
import type { GenerateResult, JsonSchema, ServedModel } from '../model/served-model.ts';
import { AnswerBuilder } from './answer-builder.ts';
import { ApiError, badRequest, contextOverflow } from './api-error.ts';
import type { CompletionInput } from './completion-input.ts';
import type { Owner, ResumePoint } from './owners.ts';
import { ProgressReporter } from './progress-reporter.ts';
import { refuseHopelessPrompt } from './prompt-guard.ts';

export interface CompletionServiceOptions {
  readonly model: ServedModel;
  readonly format: ChatFormat;
  /** Key of an assistant message in the sampled-token ledger. */
  readonly hashMessage: (message: AssistantMessage) => string;
  /** Resolves once the record is stored; rejects when it could not be. */
  readonly record: (record: CompletionRecord) => Promise<void>;
  readonly reportProgress: (progress: { requestId: string; owner: string; from: number; sampledIds: number[] }) => void;
  /** Requests waiting for a sequence beyond which new ones are refused with 429. */
  readonly maxQueued: number;
}

export interface CompleteOptions {
  readonly signal: AbortSignal;
  readonly onDelta?: (delta: ChatDelta) => void;
}

interface Prepared {
  readonly rendered: RenderedPrompt;
  readonly sampling: Sampling;
  readonly resume: ResumePoint;
}

/** Recorded answers kept per owner for a client that lost its connection. */
const keptAnswers = 8;

/** Makes completions: render, sample, parse, record. What it returns is recorded. Errors: ApiError, MassError. */
export class CompletionService {
  readonly model: ServedModel;
  readonly #options: CompletionServiceOptions;

  constructor(options: CompletionServiceOptions) {
    this.model = options.model;
    this.#options = options;
  }

  /** A named request is sampled once: asked again, it gets the answer that was recorded. */
  async complete(owner: Owner, input: CompletionInput, options: CompleteOptions): Promise<CompletionRecord> {
    const { requestId, replayable } = input;
    if (!replayable) return this.#run(owner, input, options);
    for (;;) {
      const recorded = owner.recent.get(requestId);
      if (recorded !== undefined) return recorded;
      const running = owner.running.get(requestId);
      if (running === undefined) break;
      // Its error is told to whoever started it; here only its end matters.
      await running.catch(() => undefined);
    }
    const run = this.#run(owner, input, options);
    owner.running.set(requestId, run);
    try {
      return await run;
    } finally {
      owner.running.delete(requestId);
    }
  }

  async #run(owner: Owner, input: CompletionInput, options: CompleteOptions): Promise<CompletionRecord> {
    const prepared = await this.#prepare(owner, input);
    const { message, result } = await this.#sample(owner, { input, prepared, options });
    const record = this.#recordOf(owner, { input, prepared, message, result });
    await this.#options.record(record);
    this.#remember(owner, record, prepared.rendered.promptIds, input.replayable);
    return record;
  }

  async #prepare(owner: Owner, input: CompletionInput): Promise<Prepared> {
    const { model, format, maxQueued } = this.#options;
    if (model.metrics().queued >= maxQueued) {
      throw new ApiError(429, `${maxQueued} requests are waiting already; try again later.`, {
        code: 'too_many_requests',
        headers: { 'retry-after': '2' },
      });
    }
    await refuseHopelessPrompt(input.chat, model);
    const rendered = format.render(input.chat, owner.ledger);
    if (rendered.grammar !== null) await this.#checkSchema(rendered.grammar.schema, input);
    const room = model.info.contextSize - rendered.promptIds.length;
    if (room < 1) throw contextOverflow(rendered.promptIds.length, model.info.contextSize);
    const sampling = { ...input.sampling, maxTokens: Math.min(input.sampling.maxTokens ?? room, room) };
    const point = owner.resumePoints.get(input.requestId);
    owner.resumePoints.delete(input.requestId);
    const sampledIds = (point?.sampledIds ?? []).slice(0, sampling.maxTokens);
    const resumedAt = point === undefined ? [] : [...point.resumedAt, sampledIds.length];
    return { rendered, sampling, resume: { sampledIds, resumedAt } };
  }

  /** What is enforced comes from the response format, or from the tools of a model that has no tool format. */
  async #checkSchema(schema: JsonSchema, input: CompletionInput): Promise<void> {
    try {
      await this.#options.model.checkSchema(schema);
    } catch (error) {
      if (!(error instanceof MassError && error.code === 'invalid_input')) throw error;
      throw badRequest(`The schema cannot be enforced: ${error.message}`, {
        code: 'invalid_schema',
        param: input.chat.responseSchema === null ? 'tools' : 'response_format.json_schema.schema',
        cause: error,
      });
    }
  }

  async #sample(
    owner: Owner,
    { input, prepared, options }: { input: CompletionInput; prepared: Prepared; options: CompleteOptions },
  ): Promise<{ message: AssistantMessage; result: GenerateResult }> {
    const { model, format, reportProgress } = this.#options;
    const { rendered, sampling, resume } = prepared;
    const answer = new AnswerBuilder({
      model,
      format,
      rendered,
      stopTexts: sampling.stop ?? [],
      callIdSeed: input.completionId.slice(-16),
      onDelta: options.onDelta,
    });
    const progress = new ProgressReporter(resume.sampledIds.length, (piece) => {
      if (input.replayable) reportProgress({ requestId: input.requestId, owner: owner.name, ...piece });
    });
    // An error in this code must end this request, not the scheduler that calls it.
    const failure = new AbortController();
    const onTokens = (ids: readonly number[]): void => {
      try {
        progress.push(ids);
        answer.push(ids);
      } catch (error) {
        failure.abort(error);
      }
    };
    try {
      answer.push(resume.sampledIds);
      const result = await model.generate({
        promptIds: rendered.promptIds,
        resumeIds: resume.sampledIds,
        affinity: `${owner.name}\n${input.thread}`,
        temperature: sampling.temperature,
        topP: sampling.topP,
        topK: sampling.topK,
        seed: sampling.seed,
        maxTokens: sampling.maxTokens,
        stopIds: rendered.stopIds,
        stopTexts: sampling.stop ?? [],
        ...(rendered.grammar === null ? {} : { grammar: rendered.grammar }),
        forkPoints: rendered.forkPoints,
        onTokens,
        signal: AbortSignal.any([options.signal, failure.signal]),
      });
      answer.push(result.sampledIds.slice(answer.taken));
      return { message: answer.finish(result.finishReason === 'length'), result };
    } catch (error) {
      throw failure.signal.aborted ? failure.signal.reason : error;
    } finally {
      progress.flush();
    }
  }

  #recordOf(
    owner: Owner,
    made: { input: CompletionInput; prepared: Prepared; message: AssistantMessage; result: GenerateResult },
  ): CompletionRecord {
    const { input, message, result } = made;
    const { rendered, sampling, resume } = made.prepared;
    const { info } = this.#options.model;
    const link = owner.chain.link(input.thread, rendered.promptIds);
    return {
      completionId: input.completionId,
      requestId: input.requestId,
      owner: owner.name,
      thread: input.thread,
      ...link,
      promptTail: [...link.promptTail],
      sampledIds: [...result.sampledIds],
      messages: [...input.chat.messages],
      tools: [...input.chat.tools],
      message,
      messageHash: this.#options.hashMessage(message),
      finishReason: finishReason(message, result),
      sampling,
      usage: usageOf(rendered, result),
      ledgerMisses: rendered.ledgerMisses,
      resumedAt: [...resume.resumedAt],
      modelSha256: info.sha256,
      adapterSha256: info.adapterSha256,
      queueMs: result.queueMs,
      prefillMs: result.prefillMs,
      decodeMs: result.decodeMs,
    };
  }

  /** Only what is recorded may be referred to by later records. */
  #remember(owner: Owner, record: CompletionRecord, promptIds: readonly number[], replayable: boolean): void {
    owner.ledger.add(record.messageHash, record.sampledIds);
    owner.chain.add(record.thread, record.completionId, promptIds, record.sampledIds);
    if (!replayable) return;
    owner.recent.set(record.requestId, record);
    const [oldest] = owner.recent.keys();
    if (owner.recent.size > keptAnswers && oldest !== undefined) owner.recent.delete(oldest);
  }
}

/** Cut off by length outweighs calls: a client must not take a cut answer for a whole one. */
function finishReason(message: AssistantMessage, result: GenerateResult): FinishReason {
  if (result.finishReason === 'length') return 'length';
  return (message.toolCalls ?? []).length > 0 ? 'tool_calls' : 'stop';
}

function usageOf(rendered: RenderedPrompt, result: GenerateResult): Usage {
  const promptTokens = rendered.promptIds.length;
  const cachedTokens = Math.min(result.cachedTokens, promptTokens);
  return {
    promptTokens,
    cachedTokens,
    evaluatedTokens: promptTokens - cachedTokens,
    completionTokens: result.sampledIds.length,
  };
}
