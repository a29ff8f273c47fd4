import { z } from 'zod';
import type { Message, ToolDefinition } from '../../common/domain/chat.ts';
import { fromWireCall, WireToolCall } from '../../common/protocol/openai-tool-calls.ts';

/**
 * The body of `/v1/chat/completions`. Unknown fields are ignored, as OpenAI's clients send many that do not change the
 * answer; fields that would change it and are not supported are refused.
 */

/** OpenAI's content: a text or an array of text parts. */
const Content = z.unknown().transform(readContent);

/** An assistant that only calls tools has no content. */
const OptionalContent = z
  .unknown()
  .optional()
  .transform((value, context) => readContent(value ?? '', context));

function readContent(value: unknown, context: z.RefinementCtx): string {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) {
    context.addIssue({ code: 'custom', message: 'content must be a text or an array of text parts' });
    return z.NEVER;
  }
  const texts: string[] = [];
  for (const [i, part] of value.entries()) {
    const parsed = Part.safeParse(part);
    if (parsed.success) texts.push(parsed.data.text);
    else context.addIssue({ code: 'custom', path: [i], message: unreadablePart(part) });
  }
  return texts.join('');
}

const Part = z.object({ type: z.literal('text'), text: z.string() });

function unreadablePart(part: unknown): string {
  const type = z.object({ type: z.string() }).safeParse(part);
  return type.success && type.data.type !== 'text'
    ? `only text is supported, not ${type.data.type.slice(0, 40)}`
    : 'a part is {"type": "text", "text": "..."}';
}

const BodyMessage = z.discriminatedUnion(
  'role',
  [
    z.object({ role: z.literal('system'), content: Content }),
    z.object({ role: z.literal('developer'), content: Content }),
    z.object({ role: z.literal('user'), content: Content }),
    z.object({
      role: z.literal('assistant'),
      content: OptionalContent,
      reasoning_content: z.string().nullish(),
      tool_calls: z.array(WireToolCall).nullish(),
    }),
    z.object({ role: z.literal('tool'), tool_call_id: z.string(), content: Content }),
  ],
  { error: 'a message is an object whose role is system, developer, user, assistant or tool' },
);
type BodyMessage = z.infer<typeof BodyMessage>;

const JsonObject = z.record(z.string(), z.unknown());
const ToolName = z
  .string()
  .regex(/^[a-zA-Z0-9_.-]{1,64}$/, 'a name has 1 to 64 letters, digits, dots, dashes or underscores');

const BodyTool = z.object({
  type: z.literal('function'),
  function: z.object({
    name: ToolName,
    description: z.string().nullish(),
    parameters: JsonObject.nullish(),
  }),
});

const ToolChoice = z.union(
  [
    z.enum(['auto', 'none', 'required']),
    z.object({ type: z.literal('function'), function: z.object({ name: z.string() }) }),
  ],
  { error: 'it must be "auto", "none", "required" or {"type": "function", "function": {"name": ...}}' },
);

const ResponseFormat = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text') }),
  z.object({ type: z.literal('json_object') }),
  z.object({ type: z.literal('json_schema'), json_schema: z.object({ schema: JsonObject }) }),
]);

/** A parameter whose only supported value is the one that changes nothing. */
const onlyNeutral = (name: string, neutral: readonly unknown[]) =>
  z
    .unknown()
    .optional()
    .refine((value) => value === undefined || value === null || neutral.includes(value), `${name} is not supported`);

const MaxTokens = z.number().int().positive().max(2_147_483_647).nullish();
const StopText = z.string().min(1).max(1000);

export const ChatBody = z
  .object({
    model: z.string(),
    messages: z.array(BodyMessage).min(1, 'at least one message is needed'),
    tools: z.array(BodyTool).max(512).nullish(),
    tool_choice: ToolChoice.nullish(),
    response_format: ResponseFormat.nullish(),
    temperature: z.number().min(0).max(10).nullish(),
    top_p: z.number().gt(0).max(1).nullish(),
    top_k: z.number().int().min(0).max(1_000_000).nullish(),
    seed: z.number().int().nullish(),
    max_tokens: MaxTokens,
    max_completion_tokens: MaxTokens,
    stop: z.union([StopText, z.array(StopText).max(16)], { error: 'it must be a text or at most 16 texts' }).nullish(),
    stream: z.boolean().nullish(),
    stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
    chat_template_kwargs: JsonObject.nullish(),
    mass: z.object({ shared_prefix: z.string().nullish() }).nullish(),
    n: onlyNeutral('more than one choice', [1]),
    logprobs: onlyNeutral('logprobs', [false]),
    frequency_penalty: onlyNeutral('frequency_penalty', [0]),
    presence_penalty: onlyNeutral('presence_penalty', [0]),
  })
  .superRefine((body, context) => {
    const names = (body.tools ?? []).map((tool) => tool.function.name);
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    const wrong = (path: string, message: string) => context.addIssue({ code: 'custom', path: [path], message });
    if (twice !== undefined) wrong('tools', `the tool ${twice} is defined twice`);
    const choice = body.tool_choice ?? 'auto';
    if (choice === 'required' && names.length === 0) wrong('tool_choice', 'a call is required but there are no tools');
    if (typeof choice === 'object' && !names.includes(choice.function.name)) {
      wrong('tool_choice', `there is no tool ${choice.function.name.slice(0, 64)}`);
    }
    if (typeof body.chat_template_kwargs?.enable_thinking === 'string') {
      wrong('chat_template_kwargs', 'enable_thinking is true or false');
    }
  });
export type ChatBody = z.infer<typeof ChatBody>;

/** OpenAI's messages in the provider-neutral form. */
export function toMessages(body: ChatBody): Message[] {
  return body.messages.map(toMessage);
}

function toMessage(message: BodyMessage): Message {
  switch (message.role) {
    case 'developer':
      return { role: 'system', content: message.content };
    case 'tool':
      return { role: 'tool', toolCallId: message.tool_call_id, content: message.content };
    case 'assistant': {
      const calls = message.tool_calls ?? [];
      return {
        role: 'assistant',
        content: message.content,
        ...(message.reasoning_content ? { reasoning: message.reasoning_content } : {}),
        ...(calls.length > 0 ? { toolCalls: calls.map(fromWireCall) } : {}),
      };
    }
    default:
      return message;
  }
}

export function toTools(body: ChatBody): ToolDefinition[] {
  return (body.tools ?? []).map(({ function: { name, description, parameters } }) => ({
    name,
    description: description ?? '',
    parameters: parameters ?? { type: 'object', properties: {} },
  }));
}
