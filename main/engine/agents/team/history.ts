import type { Message, ToolDefinition, Usage } from '../../../common/domain/chat.ts';
import type { Endpoint } from '../../endpoints/endpoint.ts';

/** Role header and separators of one message in any known template, in tokens; an upper estimate. */
const MESSAGE_TOKENS = 12;

/**
 * A thread's conversation and what it costs. Nothing is ever dropped: a conversation that no longer fits ends the thread.
 * The cost is exact up to the newest completion (the endpoint counted it) and estimated for what came after.
 */
export interface History {
  readonly messages: readonly Message[];
  /** Tokens an answer may still have. */
  room(): number;
  /** `tokens`: of the content, where known. */
  add(message: Message, tokens?: number): Promise<void>;
  /** Appends an answer whose completion the endpoint counted. */
  answered(message: Message, usage: Usage): void;
  /** The endpoint knows better: the prompt has this many tokens. False when that is no news: not more than estimated. */
  correct(promptTokens: number): boolean;
}

/** Tokens of the context a thread may fill: small contexts give up at most a sixteenth to safety. */
export const usableContext = (contextTokens: number, contextSafety: number): number =>
  contextTokens - Math.min(contextSafety, Math.floor(contextTokens / 16));

/** Below this an answer would only be cut: an answer needs 1/32 of the context, at least 64 tokens, at most a turn. */
export const smallestAnswer = (contextTokens: number, turnTokens: number): number =>
  Math.min(turnTokens, Math.max(64, Math.floor(contextTokens / 32)));

export async function createHistory(
  endpoint: Endpoint,
  options: { readonly tools: readonly ToolDefinition[]; readonly contextSafety: number },
): Promise<History> {
  const limit = usableContext(endpoint.contextTokens, options.contextSafety);
  const messages: Message[] = [];
  const toolTokens = await endpoint.countTokens(JSON.stringify(options.tools));
  let used = toolTokens;

  /** Templates drop earlier reasoning at a new user message; the smaller of both counts is the estimate. */
  async function recount(): Promise<number> {
    let total = toolTokens;
    for (const message of messages) total += MESSAGE_TOKENS + (await endpoint.countTokens(spoken(message)));
    return total;
  }

  return {
    messages,
    room: () => limit - used,
    add: async (message, tokens) => {
      const answeredBefore = message.role === 'user' && messages.some(({ role }) => role === 'assistant');
      messages.push(message);
      used += MESSAGE_TOKENS + (tokens ?? (await endpoint.countTokens(message.content)));
      if (answeredBefore) used = Math.min(used, await recount());
    },
    answered: (message, usage) => {
      messages.push(message);
      used = usage.promptTokens + usage.completionTokens;
    },
    correct: (promptTokens) => {
      if (promptTokens <= used) return false;
      used = promptTokens;
      return true;
    },
  };
}

const spoken = (message: Message): string =>
  message.role === 'assistant' && message.toolCalls
    ? `${message.content}\n${JSON.stringify(message.toolCalls)}`
    : message.content;
