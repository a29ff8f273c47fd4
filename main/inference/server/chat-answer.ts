import type { AssistantMessage, Usage } from '../../common/domain/chat.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { toWireCall } from '../../common/protocol/openai-tool-calls.ts';
import type { ChatDelta } from '../chat/chat-format.ts';

/** Shapes of OpenAI's chat completion and of its chunks. Seconds since 1970 in `created`. */
export interface AnswerIdentity {
  readonly completionId: string;
  readonly model: string;
  readonly created: number;
}

export function completionBody(identity: AnswerIdentity, record: CompletionRecord): Record<string, unknown> {
  return {
    id: identity.completionId,
    object: 'chat.completion',
    created: identity.created,
    model: identity.model,
    choices: [{ index: 0, message: messageBody(record.message), logprobs: null, finish_reason: record.finishReason }],
    usage: usageBody(record.usage),
  };
}

export type ChunkContent =
  | { readonly kind: 'start' }
  | { readonly kind: 'delta'; readonly delta: ChatDelta }
  | { readonly kind: 'finish'; readonly finishReason: string }
  | { readonly kind: 'usage'; readonly usage: Usage };

export function chunkBody(identity: AnswerIdentity, content: ChunkContent): Record<string, unknown> {
  const choice = (delta: Record<string, unknown>, finishReason: string | null = null) => [
    { index: 0, delta, logprobs: null, finish_reason: finishReason },
  ];
  const head = {
    id: identity.completionId,
    object: 'chat.completion.chunk',
    created: identity.created,
    model: identity.model,
  };
  switch (content.kind) {
    case 'start':
      return { ...head, choices: choice({ role: 'assistant', content: '' }) };
    case 'delta':
      return { ...head, choices: choice(deltaBody(content.delta)) };
    case 'finish':
      return { ...head, choices: choice({}, content.finishReason) };
    case 'usage':
      return { ...head, choices: [], usage: usageBody(content.usage) };
  }
}

function messageBody(message: AssistantMessage): Record<string, unknown> {
  const calls = message.toolCalls ?? [];
  return {
    role: 'assistant',
    content: message.content === '' && calls.length > 0 ? null : message.content,
    refusal: null,
    ...(message.reasoning === undefined ? {} : { reasoning_content: message.reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map(toWireCall) }),
  };
}

function deltaBody(delta: ChatDelta): Record<string, unknown> {
  switch (delta.kind) {
    case 'reasoning':
      return { reasoning_content: delta.text };
    case 'content':
      return { content: delta.text };
    case 'tool-call':
      return { tool_calls: [{ index: delta.index, ...toWireCall(delta) }] };
  }
}

function usageBody(usage: Usage): Record<string, unknown> {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
  };
}
