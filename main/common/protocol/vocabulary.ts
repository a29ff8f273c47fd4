import { z } from 'zod';
import { AssistantMessage, Message, ToolDefinition } from '../domain/chat.ts';
import { ErrorDataSchema } from './error-data.ts';

/**
 * The boundary between the engine and a vocabulary process: Node IPC with `serialization: 'advanced'`. Such a process
 * knows a model's tokenizer and chat template but holds no weights and no device. Every request has one answer.
 */
const Ids = z.custom<Uint32Array>((value) => value instanceof Uint32Array);
const id = z.number().int();

/** A completion as it was recorded. */
export const KnownAnswer = z.object({
  message: AssistantMessage,
  sampledIds: Ids,
  thinking: z.boolean(),
  /** ended by length */
  truncated: z.boolean(),
  stopTexts: z.array(z.string()),
});
export type KnownAnswer = z.infer<typeof KnownAnswer>;

/** Answers of one owner in the order of recording, after those learned before. */
export const LearnRequest = z.object({
  owner: z.string(),
  tools: z.array(ToolDefinition),
  answers: z.array(KnownAnswer),
});
export type LearnRequest = z.infer<typeof LearnRequest>;

/** A conversation as a request of `owner` would be rendered when its first `answers` answers were known. */
export const RenderRequest = z.object({
  owner: z.string(),
  answers: z.number().int().nonnegative(),
  messages: z.array(Message),
  tools: z.array(ToolDefinition),
  thinking: z.boolean(),
  /** milliseconds since 1970: the date a template is told that asks for one */
  now: z.number(),
});
export type RenderRequest = z.infer<typeof RenderRequest>;

export const Rendered = z.object({
  /** the prompt, generation prompt included */
  ids: Ids,
  /** where each message begins and last where the answer does; null: within the turn of the message before */
  starts: z.array(z.number().int().nonnegative().nullable()),
});
export type Rendered = z.infer<typeof Rendered>;

export const VocabularyStatus = z.object({
  size: z.number().int().positive(),
  /** sha256 over the GGUF's tokens by id: length in bytes (u32, little-endian), then UTF-8 */
  sha256: z.string(),
  family: z.string(),
});
export type VocabularyStatus = z.infer<typeof VocabularyStatus>;

export const ToVocabulary = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('open'), id, path: z.string(), modelId: z.string() }),
  z.object({ kind: z.literal('learn'), id, request: LearnRequest }),
  z.object({ kind: z.literal('render'), id, request: RenderRequest }),
  z.object({ kind: z.literal('spell'), id, pieces: z.array(Ids) }),
  z.object({ kind: z.literal('forget'), id, owner: z.string() }),
  z.object({ kind: z.literal('shutdown') }),
]);
export type ToVocabulary = z.infer<typeof ToVocabulary>;

export const FromVocabulary = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('opened'), id, status: VocabularyStatus }),
  /** `wrong`: indexes of answers whose ids do not spell their message */
  z.object({ kind: z.literal('learned'), id, wrong: z.array(z.number().int()) }),
  z.object({ kind: z.literal('rendered'), id, rendered: Rendered }),
  /** control tokens are spelled out */
  z.object({ kind: z.literal('spelled'), id, texts: z.array(z.string()) }),
  z.object({ kind: z.literal('forgotten'), id }),
  z.object({ kind: z.literal('refused'), id, error: ErrorDataSchema }),
  z.object({
    kind: z.literal('log'),
    level: z.enum(['debug', 'info', 'warn', 'error']),
    message: z.string(),
    fields: z.record(z.string(), z.unknown()).optional(),
  }),
]);
export type FromVocabulary = z.infer<typeof FromVocabulary>;
