import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, Message, ToolDefinition } from '../../common/domain/chat.ts';
import { isJsonObject, parseObject } from './json-object.ts';
import type { MarkerTokens } from './marker-tokens.ts';
import type { Sentinels } from './sentinels.ts';

/**
 * One message as the template gets it. `source` is the assistant message of the request, whose hash finds the sampled
 * ids; `message` is what is rendered when they are not found.
 */
export interface Turn {
  readonly message: Message;
  readonly source: AssistantMessage | null;
  /** which message of the request this is, or begins with; null for one the format adds */
  readonly index: number | null;
  /** characters of the text that other requests share, or null */
  readonly forkAt: number | null;
}

/** Turns of a request, with the shared prefix laid on the last user message. Throws MassError invalid_input when it is no prefix of it. */
export function toTurns(messages: readonly Message[], sharedPrefix: string | null): Turn[] {
  const last = messages.findLastIndex((message) => message.role === 'user');
  if (sharedPrefix !== null && !(messages[last]?.content.startsWith(sharedPrefix) ?? false)) {
    throw new MassError('invalid_input', 'The shared prefix must be the beginning of the last user message.');
  }
  return messages.map((message, i) => ({
    message,
    source: message.role === 'assistant' ? message : null,
    index: i,
    forkAt: i === last && sharedPrefix !== null ? sharedPrefix.length : null,
  }));
}

/** The turns as template variables, contents behind marks. `spliced` are the indexes whose ids are known. */
export function templateMessages(
  turns: readonly Turn[],
  sentinels: Sentinels,
  spliced: ReadonlySet<number>,
): Record<string, unknown>[] {
  return turns.map(({ message, forkAt }, turn) => {
    sentinels.beginTurn(turn);
    switch (message.role) {
      case 'assistant':
        return spliced.has(turn)
          ? {
              role: 'assistant',
              content: sentinels.mark({ kind: 'answer', turn }),
              reasoning_content: sentinels.mark({ kind: 'reasoning', turn }),
            }
          : assistantVariables(message, sentinels);
      case 'tool':
        return {
          role: 'tool',
          tool_call_id: sentinels.text(message.toolCallId),
          name: sentinels.text(toolName(turns, message.toolCallId)),
          content: sentinels.text(message.content),
        };
      default:
        return {
          role: message.role,
          content: sentinels.text(message.content, { user: message.role === 'user', forkAt }),
        };
    }
  });
}

function assistantVariables(message: AssistantMessage, sentinels: Sentinels): Record<string, unknown> {
  const calls = (message.toolCalls ?? []).map((call) => {
    const value = parseObject(call.arguments);
    if (value === null) {
      throw new MassError('invalid_input', `The arguments of the call ${call.id} must be the JSON text of an object.`);
    }
    return {
      id: sentinels.text(call.id),
      type: 'function',
      function: { name: sentinels.text(call.name), arguments: mapStrings(value, (text) => sentinels.text(text)) },
    };
  });
  return {
    role: 'assistant',
    content: sentinels.text(message.content),
    ...(message.reasoning === undefined ? {} : { reasoning_content: sentinels.text(message.reasoning) }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

/** Tools in the form templates expect. Only strings that spell a marker are hidden: templates read the rest. */
export function templateTools(
  tools: readonly ToolDefinition[],
  sentinels: Sentinels,
  markers: MarkerTokens,
): unknown[] | null {
  if (tools.length === 0) return null;
  const hide = (text: string) => (markers.contains(text) ? sentinels.text(text) : text);
  return tools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: mapStrings({ name, description, parameters }, hide),
  }));
}

function toolName(turns: readonly Turn[], callId: string): string {
  for (const { source } of turns) {
    const call = source?.toolCalls?.find(({ id }) => id === callId);
    if (call !== undefined) return call.name;
  }
  return '';
}

/** A copy with every string, keys included, passed through `change`. */
function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), mapStrings(item, change)]));
}
