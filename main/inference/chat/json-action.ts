import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, ToolDefinition } from '../../common/domain/chat.ts';
import { loadPrompt } from '../../node/prompts.ts';
import type { ChatRequest, CompletionParser, ParserState } from './chat-format.ts';
import { type BodyParser, type ParsedSink, PlainBody, ReasoningThenBody } from './completion-parser.ts';
import type { Turn } from './conversation.ts';
import { boundedSchema, maxStringLength } from './grammar-schema.ts';
import { isJsonObject, type JsonObject, parseJson, parseObject } from './json-object.ts';

/*
 * The form for models without a tool format of their own: the tools stand in the system prompt, and a grammar allows one
 * JSON object, {"tool": NAME, "arguments": {...}} or {"reply": TEXT}. "tool" comes first, so a small model chooses before
 * it fills in.
 */

export function jsonActionParser(state: ParserState): CompletionParser {
  return new ReasoningThenBody(state, (sink) =>
    state.expectsJsonAction ? new JsonActionBody(sink, (state.tools ?? []).length > 0) : new PlainBody(sink),
  );
}

/** Tokens of a reply besides its text: braces, quotes, the key. */
const REPLY_TOKENS = 16;
/** JSON-escaped text of a small vocabulary yields about this many characters a token, at worst in practice. */
const CHARACTERS_PER_TOKEN = 2;
const SHORTEST_REPLY = 80;

/** Characters of a reply that can end within the answer's tokens: a longer one would be cut in the middle of its JSON. */
export const replyLength = (maxTokens: number | null): number =>
  maxTokens === null
    ? maxStringLength
    : Math.min(maxStringLength, Math.max(SHORTEST_REPLY, (maxTokens - REPLY_TOKENS) * CHARACTERS_PER_TOKEN));

/** The schema of one action. */
export function actionSchema(
  request: Pick<ChatRequest, 'tools' | 'toolChoice' | 'responseSchema' | 'maxTokens'>,
): JsonObject {
  const { tools, toolChoice, responseSchema, maxTokens } = request;
  const reply =
    responseSchema === null ? { type: 'string', maxLength: replyLength(maxTokens) } : boundedSchema(responseSchema);
  const variants: JsonObject[] = offered(tools, toolChoice).map(({ name, parameters }) => ({
    type: 'object',
    properties: {
      tool: { const: name },
      arguments: boundedSchema({
        ...parameters,
        type: 'object',
        properties: parameters.properties ?? {},
        additionalProperties: false,
      }),
    },
    required: ['tool', 'arguments'],
  }));
  const only = toolChoice === 'required' || typeof toolChoice === 'object';
  if (!only) variants.push({ type: 'object', properties: { reply }, required: ['reply'] });
  const [first, ...more] = variants;
  if (first === undefined)
    throw new MassError('invalid_input', 'A call is required, so at least one tool must be offered.');
  return more.length === 0 ? first : { oneOf: variants };
}

function offered(tools: readonly ToolDefinition[], choice: ChatRequest['toolChoice']): readonly ToolDefinition[] {
  if (choice === 'none') return [];
  if (typeof choice !== 'object') return tools;
  const chosen = tools.filter((tool) => tool.name === choice.name);
  if (chosen.length === 0)
    throw new MassError('invalid_input', `There is no tool ${choice.name}; offer it or choose another.`);
  return chosen;
}

/**
 * The turns with the tools in the system prompt, answers as the JSON they were written in, and tool results as user
 * messages where the template knows no tool role.
 */
export function jsonActionTurns(
  turns: readonly Turn[],
  tools: readonly ToolDefinition[],
  hasToolRole: boolean,
): Turn[] {
  const first = turns[0]?.message;
  const system = first?.role === 'system' ? first.content : null;
  const section = tools.length === 0 ? null : toolSection(tools);
  const content = [system, section].filter((text) => text !== null).join('\n\n');
  const rest = system === null ? turns : turns.slice(1);
  const head: Turn[] =
    content === '' && system === null
      ? []
      : [{ message: { role: 'system', content }, source: null, index: system === null ? null : 0, forkAt: null }];
  const answered = rest.map((turn) => (tools.length > 0 ? asAction(turn) : asText(turn)));
  return [...head, ...(hasToolRole ? answered : resultsAsUser(answered))];
}

function toolSection(tools: readonly ToolDefinition[]): string {
  const lines = tools.map(({ name, description, parameters }) => {
    const properties = isJsonObject(parameters.properties) ? parameters.properties : {};
    const example = Object.entries(properties).map(([key, schema]) => [key, placeholder(schema)]);
    return `${description}\n${JSON.stringify({ tool: name, arguments: Object.fromEntries(example) })}`;
  });
  return loadPrompt('json-tools', 1).fill({ tools: lines.join('\n\n') });
}

function placeholder(schema: unknown): string {
  if (!isJsonObject(schema)) return 'any';
  if (typeof schema.description === 'string') return schema.description;
  if (Array.isArray(schema.enum)) return schema.enum.map(String).join('|');
  return typeof schema.type === 'string' ? schema.type : 'any';
}

const callText = (message: AssistantMessage): string =>
  (message.toolCalls ?? [])
    .map((call) => JSON.stringify({ tool: call.name, arguments: parseObject(call.arguments) ?? call.arguments }))
    .join('\n');

function asAction(turn: Turn): Turn {
  const { message } = turn;
  if (message.role !== 'assistant') return turn;
  const calls = callText(message);
  const content = calls === '' ? JSON.stringify({ reply: message.content }) : calls;
  return { ...turn, message: withText(message, content) };
}

/** Without tools on offer there are no actions; earlier calls are still told as the JSON they were. */
function asText(turn: Turn): Turn {
  const { message } = turn;
  if (message.role !== 'assistant') return turn;
  return { ...turn, message: withText(message, [message.content, callText(message)].filter(Boolean).join('\n')) };
}

const withText = (message: AssistantMessage, content: string): AssistantMessage => ({
  role: 'assistant',
  content,
  ...(message.reasoning === undefined ? {} : { reasoning: message.reasoning }),
});

/** The results of one turn become one user message: some templates insist that roles alternate. */
function resultsAsUser(turns: readonly Turn[]): Turn[] {
  const out: Turn[] = [];
  let results: string[] = [];
  let first: number | null = null;
  const flush = () => {
    if (results.length === 0) return;
    out.push({ message: { role: 'user', content: results.join('\n') }, source: null, index: first, forkAt: null });
    results = [];
  };
  for (const turn of turns) {
    if (turn.message.role === 'tool') {
      if (results.length === 0) first = turn.index;
      results.push(loadPrompt('json-tool-result', 1).fill({ result: turn.message.content }));
      continue;
    }
    flush();
    out.push(turn);
  }
  flush();
  return out;
}

/** Reads one action when it is complete; what is not one is content as it stands. */
class JsonActionBody implements BodyParser {
  readonly #sink: ParsedSink;
  readonly #readsCalls: boolean;
  #text = '';

  constructor(sink: ParsedSink, readsCalls: boolean) {
    this.#sink = sink;
    this.#readsCalls = readsCalls;
  }

  push(text: string): void {
    this.#text += text;
  }

  finish(): void {
    const action = parseJson(this.#text);
    if (isJsonObject(action)) {
      const { tool, arguments: args, reply } = action;
      if (typeof tool === 'string' && isJsonObject(args) && this.#readsCalls) {
        this.#sink.call(tool, args);
        return;
      }
      if (reply !== undefined && tool === undefined) {
        this.#sink.content(typeof reply === 'string' ? reply : JSON.stringify(reply));
        return;
      }
    }
    this.#sink.content(this.#text.trim());
  }
}
