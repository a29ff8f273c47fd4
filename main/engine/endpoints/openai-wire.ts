import { z } from 'zod';
import { MassError } from '../../common/base/errors.ts';
import { type AssistantMessage, FinishReason, type Message } from '../../common/domain/chat.ts';
import {
  fromWireCall,
  toWireCall,
  toWireChoice,
  toWireTool,
  WireToolCall,
} from '../../common/protocol/openai-tool-calls.ts';
import type { Completion, CompletionRequest } from './endpoint.ts';

/** The Endpoint contract in OpenAI's words and back. */
export function toBody(request: CompletionRequest, model: string): Record<string, unknown> {
  const { sampling, tools = [], responseSchema, sharedPrefix } = request;
  return {
    model,
    messages: request.messages.map(toWireMessage),
    ...(tools.length === 0
      ? {}
      : {
          tools: tools.map(toWireTool),
          tool_choice: toWireChoice(request.toolChoice ?? 'auto'),
        }),
    ...(responseSchema === undefined
      ? {}
      : {
          response_format: {
            type: 'json_schema',
            json_schema: { name: 'answer', strict: true, schema: responseSchema },
          },
        }),
    temperature: sampling.temperature,
    top_p: sampling.topP,
    top_k: sampling.topK,
    seed: sampling.seed,
    max_tokens: sampling.maxTokens,
    ...(sampling.stop === undefined ? {} : { stop: sampling.stop }),
    chat_template_kwargs: { enable_thinking: sampling.thinking },
    ...(sharedPrefix === undefined ? {} : { mass: { shared_prefix: sharedPrefix } }),
  };
}

function toWireMessage(message: Message): Record<string, unknown> {
  if (message.role === 'tool') return { role: 'tool', tool_call_id: message.toolCallId, content: message.content };
  if (message.role !== 'assistant') return message;
  const calls = message.toolCalls ?? [];
  return {
    role: 'assistant',
    content: message.content,
    ...(message.reasoning === undefined ? {} : { reasoning_content: message.reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map(toWireCall) }),
  };
}

const WireCompletion = z.object({
  id: z.string(),
  choices: z.tuple([
    z.object({
      message: z.object({
        content: z.string().nullable(),
        reasoning_content: z.string().optional(),
        tool_calls: z.array(WireToolCall).optional(),
      }),
      finish_reason: FinishReason,
    }),
  ]),
  usage: z.object({
    prompt_tokens: z.number().int(),
    completion_tokens: z.number().int(),
    prompt_tokens_details: z.object({ cached_tokens: z.number().int() }),
  }),
});

export function fromCompletionBody(body: unknown): Completion {
  const { id, choices, usage } = parse(WireCompletion, body);
  const [{ message, finish_reason }] = choices;
  const cachedTokens = usage.prompt_tokens_details.cached_tokens;
  const answer: AssistantMessage = {
    role: 'assistant',
    content: message.content ?? '',
    ...(message.reasoning_content === undefined ? {} : { reasoning: message.reasoning_content }),
    ...(message.tool_calls === undefined ? {} : { toolCalls: message.tool_calls.map(fromWireCall) }),
  };
  return {
    completionId: id,
    message: answer,
    finishReason: finish_reason,
    usage: {
      promptTokens: usage.prompt_tokens,
      cachedTokens,
      evaluatedTokens: usage.prompt_tokens - cachedTokens,
      completionTokens: usage.completion_tokens,
    },
  };
}

export function fromTokenizeBody(body: unknown): number {
  return parse(z.object({ tokens: z.number().int().nonnegative() }), body).tokens;
}

const WireError = z.object({
  error: z.object({
    message: z.string(),
    code: z.string().nullable(),
    prompt_tokens: z.number().optional(),
    context_tokens: z.number().optional(),
  }),
});

/** An error answer as the contract words it: what the request was wrong about is invalid_input, the rest infrastructure. */
export function fromErrorBody(status: number, body: unknown): MassError {
  const parsed = WireError.safeParse(body);
  if (!parsed.success)
    return new MassError('infrastructure', `The model endpoint answered ${status} without a reason.`);
  const { message, code, prompt_tokens: promptTokens, context_tokens: contextTokens } = parsed.data.error;
  const details = {
    status,
    reason: code,
    ...(promptTokens === undefined ? {} : { promptTokens }),
    ...(contextTokens === undefined ? {} : { contextTokens }),
  };
  const ours = status === 400 || status === 404 || status === 413;
  return new MassError(ours ? 'invalid_input' : 'infrastructure', message, { details });
}

function parse<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  throw new MassError('infrastructure', 'The model endpoint gave an answer that does not parse.', {
    cause: parsed.error,
  });
}
