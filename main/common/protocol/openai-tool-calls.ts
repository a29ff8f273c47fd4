import { z } from 'zod';
import type { ToolCall, ToolDefinition } from '../domain/chat.ts';

/** Tool calls and tools as the OpenAI-compatible endpoint speaks of them: for the side that asks and the side that answers. */
export const WireToolCall = z.object({
  id: z.string(),
  type: z.literal('function').optional(),
  function: z.object({ name: z.string(), arguments: z.string() }),
});
export type WireToolCall = z.infer<typeof WireToolCall>;

export const toWireCall = ({ id, name, arguments: text }: ToolCall) => ({
  id,
  type: 'function' as const,
  function: { name, arguments: text },
});

export const fromWireCall = ({ id, function: called }: WireToolCall): ToolCall => ({
  id,
  name: called.name,
  arguments: called.arguments,
});

export const toWireTool = (tool: ToolDefinition) => ({ type: 'function' as const, function: tool });

export const toWireChoice = (choice: 'auto' | 'none' | 'required' | { readonly name: string }) =>
  typeof choice === 'object' ? { type: 'function' as const, function: { name: choice.name } } : choice;
