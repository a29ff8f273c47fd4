import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, FinishReason, Message } from '../../common/domain/chat.ts';
import { CompletionChain } from '../../common/domain/completion-chain.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { untilAborted } from '../../node/until-aborted.ts';
import type { Completion, CompletionRequest, Endpoint, EndpointProvider } from './endpoint.ts';

export type ScriptedAnswer =
  | AssistantMessage
  | { readonly message: AssistantMessage; readonly finishReason: FinishReason };

export interface ScriptedEndpointOptions {
  /** What the model says. Throwing is an endpoint failure of that kind. */
  readonly answer: (owner: string, request: CompletionRequest) => ScriptedAnswer | Promise<ScriptedAnswer>;
  readonly onRecord: (record: CompletionRecord) => Promise<void>;
  readonly latencyMs?: number;
  /** A prompt of this many bytes or more is refused as too long. */
  readonly contextTokens?: number;
  readonly modelSha256?: string;
  readonly adapterSha256?: string | null;
}

/**
 * Endpoints whose words are a function, for tests of logic: same contract, same records, tokens are the bytes of UTF-8.
 */
export function createScriptedEndpoints(options: ScriptedEndpointOptions): EndpointProvider {
  return { open: (owner) => Promise.resolve(new ScriptedEndpoint(owner, options)) };
}

class ScriptedEndpoint implements Endpoint {
  readonly contextTokens: number;
  readonly #owner: string;
  readonly #options: ScriptedEndpointOptions;
  readonly #chain = new CompletionChain();
  #closed = false;

  constructor(owner: string, options: ScriptedEndpointOptions) {
    this.#owner = owner;
    this.#options = options;
    this.contextTokens = options.contextTokens ?? 1_000_000;
  }

  async complete(request: CompletionRequest): Promise<Completion> {
    const { answer, onRecord, latencyMs = 0 } = this.#options;
    const { signal } = request;
    if (this.#closed) throw new MassError('infrastructure', 'The endpoint was closed.');
    const promptIds = bytesOf(promptText(request));
    if (promptIds.length >= this.contextTokens) throw this.#overflow(promptIds.length);
    const startedAt = Date.now();
    const scripted = await untilAborted(
      (async () => {
        if (latencyMs > 0) await sleep(latencyMs, undefined, signal === undefined ? {} : { signal });
        return answer(this.#owner, request);
      })(),
      signal,
    );
    const record = this.#recordOf(request, promptIds, scripted, Date.now() - startedAt);
    await onRecord(record);
    this.#chain.add(request.thread, record.completionId, promptIds, record.sampledIds);
    const { completionId, message, finishReason, usage } = record;
    return { completionId, message, finishReason, usage };
  }

  countTokens(text: string): Promise<number> {
    return Promise.resolve(Buffer.byteLength(text));
  }

  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }

  #recordOf(
    request: CompletionRequest,
    promptIds: readonly number[],
    scripted: ScriptedAnswer,
    decodeMs: number,
  ): CompletionRecord {
    const message = 'message' in scripted ? scripted.message : scripted;
    const calls = (message.toolCalls ?? []).length;
    const sampledIds = bytesOf(sampledText(message));
    const link = this.#chain.link(request.thread, promptIds);
    const requestId = crypto.randomUUID();
    return {
      completionId: `scripted-${createHash('sha256').update(requestId).digest('hex').slice(0, 32)}`,
      requestId,
      owner: this.#owner,
      thread: request.thread,
      ...link,
      promptTail: [...link.promptTail],
      sampledIds,
      messages: [...request.messages],
      tools: [...(request.tools ?? [])],
      message,
      messageHash: createHash('sha256').update(assistantText(message)).digest('hex'),
      finishReason: 'finishReason' in scripted ? scripted.finishReason : calls > 0 ? 'tool_calls' : 'stop',
      sampling: request.sampling,
      usage: {
        promptTokens: promptIds.length,
        cachedTokens: link.parentPrefix,
        evaluatedTokens: promptIds.length - link.parentPrefix,
        completionTokens: sampledIds.length,
      },
      ledgerMisses: 0,
      resumedAt: [],
      modelSha256: this.#options.modelSha256 ?? '0'.repeat(64),
      adapterSha256: this.#options.adapterSha256 ?? null,
      queueMs: 0,
      prefillMs: 0,
      decodeMs,
    };
  }

  #overflow(promptTokens: number): MassError {
    return new MassError(
      'invalid_input',
      `The prompt is ${promptTokens} tokens; the context holds ${this.contextTokens}.`,
      {
        details: { reason: 'context_length_exceeded', promptTokens, contextTokens: this.contextTokens },
      },
    );
  }
}

/** Answers appear in later prompts exactly as they were sampled, so threads share prefixes as with a real model. */
function promptText(request: Pick<CompletionRequest, 'messages' | 'tools'>): string {
  return promptPieces(request).join('');
}

/** Text of the prompt by message; the tools stand before the first, and the last piece asks for the answer. */
export function promptPieces({ tools = [], messages }: Pick<CompletionRequest, 'messages' | 'tools'>): string[] {
  const offered = `${tools.map((tool) => tool.name).join(' ')}\n`;
  return [...messages.map((message, i) => (i === 0 ? offered : '') + messageText(message)), 'assistant: '];
}

/** What is sampled for an answer. */
export const sampledText = (message: AssistantMessage): string => `${assistantText(message)}\n`;

function messageText(message: Message): string {
  if (message.role === 'assistant') return `assistant: ${sampledText(message)}`;
  return `${message.role}: ${message.content}\n`;
}

function assistantText({ content, reasoning, toolCalls = [] }: AssistantMessage): string {
  const calls = toolCalls.map((call) => `\ncall ${call.name} ${call.arguments}`).join('');
  return `${reasoning === undefined ? '' : `(${reasoning}) `}${content}${calls}`;
}

const bytesOf = (text: string): number[] => [...Buffer.from(text)];
