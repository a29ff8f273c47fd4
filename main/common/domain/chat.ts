import { z } from 'zod';

/** One call the model made. `arguments` is the JSON text of an object, as in OpenAI's form. */
export const ToolCall = z.object({ id: z.string(), name: z.string(), arguments: z.string() });
export type ToolCall = z.infer<typeof ToolCall>;

/** What the model said. `reasoning` is the text of the thinking block without its tags. */
export const AssistantMessage = z.object({
  role: z.literal('assistant'),
  content: z.string(),
  reasoning: z.string().optional(),
  toolCalls: z.array(ToolCall).optional(),
});
export type AssistantMessage = z.infer<typeof AssistantMessage>;

/** A conversation message, provider-neutral. */
export const Message = z.discriminatedUnion('role', [
  z.object({ role: z.literal('system'), content: z.string() }),
  z.object({ role: z.literal('user'), content: z.string() }),
  AssistantMessage,
  z.object({ role: z.literal('tool'), toolCallId: z.string(), content: z.string() }),
]);
export type Message = z.infer<typeof Message>;

/** A tool offered to the model; `parameters` is a JSON Schema object. */
export const ToolDefinition = z.object({
  name: z.string(),
  description: z.string(),
  parameters: z.record(z.string(), z.unknown()),
});
export type ToolDefinition = z.infer<typeof ToolDefinition>;

export const FinishReason = z.enum(['stop', 'length', 'tool_calls']);
export type FinishReason = z.infer<typeof FinishReason>;

/** Sampling of one request. Temperature 0 is greedy. Tokens are the served model's. */
export const Sampling = z.object({
  temperature: z.number().min(0).max(10),
  topP: z.number().gt(0).max(1),
  topK: z.number().int().min(0),
  seed: z.number().int(),
  maxTokens: z.number().int().positive(),
  thinking: z.boolean(),
  stop: z.array(z.string()).optional(),
});
export type Sampling = z.infer<typeof Sampling>;

/** Token counts of one completion: prompt = cached + evaluated. */
export const Usage = z.object({
  promptTokens: z.number().int(),
  cachedTokens: z.number().int(),
  evaluatedTokens: z.number().int(),
  completionTokens: z.number().int(),
});
export type Usage = z.infer<typeof Usage>;
