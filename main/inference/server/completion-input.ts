import { randomInt } from 'node:crypto';
import type { Sampling } from '../../common/domain/chat.ts';
import { SamplingConfig } from '../../common/domain/config.ts';
import type { ChatRequest } from '../chat/chat-format.ts';
import { type ChatBody, toMessages, toTools } from './chat-body.ts';

/** One completion to make, free of HTTP. `maxTokens` null: as many as the context holds. */
export interface CompletionInput {
  readonly completionId: string;
  readonly requestId: string;
  /** The client named the request, so it may send it again after a crash. */
  readonly replayable: boolean;
  readonly thread: string;
  readonly chat: ChatRequest;
  readonly sampling: Omit<Sampling, 'maxTokens'> & { readonly maxTokens: number | null };
}

export type RequestIdentity = Pick<CompletionInput, 'completionId' | 'requestId' | 'replayable' | 'thread'>;

/** Absent sampling fields take the defaults of an experiment's configuration; an absent seed is drawn and recorded. */
export function toCompletionInput(body: ChatBody, identity: RequestIdentity): CompletionInput {
  const defaults = SamplingConfig.parse({});
  const { enable_thinking, ...templateVariables } = body.chat_template_kwargs ?? {};
  const thinking = typeof enable_thinking === 'boolean' ? enable_thinking : defaults.thinking;
  const maxTokens = body.max_completion_tokens ?? body.max_tokens ?? null;
  const stop = typeof body.stop === 'string' ? [body.stop] : (body.stop ?? []);
  return {
    ...identity,
    chat: {
      messages: toMessages(body),
      tools: toTools(body),
      toolChoice: toolChoice(body),
      responseSchema: responseSchema(body),
      thinking,
      templateVariables,
      sharedPrefix: body.mass?.shared_prefix ?? null,
      maxTokens,
    },
    sampling: {
      temperature: body.temperature ?? defaults.temperature,
      topP: body.top_p ?? defaults.topP,
      topK: body.top_k ?? defaults.topK,
      seed: body.seed ?? randomInt(2 ** 31),
      maxTokens,
      thinking,
      ...(stop.length > 0 ? { stop } : {}),
    },
  };
}

function toolChoice(body: ChatBody): ChatRequest['toolChoice'] {
  const choice = body.tool_choice ?? 'auto';
  return typeof choice === 'string' ? choice : { name: choice.function.name };
}

function responseSchema(body: ChatBody): ChatRequest['responseSchema'] {
  const format = body.response_format;
  if (format?.type === 'json_schema') return format.json_schema.schema;
  return format?.type === 'json_object' ? {} : null;
}
