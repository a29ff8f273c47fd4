import type { z } from 'zod';
import type { Message, Usage } from '../../common/domain/chat.ts';
import type { SamplingConfig } from '../../common/domain/config.ts';
import type { Completion, Endpoint, JsonSchema } from '../endpoints/endpoint.ts';

/** Room for the chat template's own tokens and for counting texts piece by piece. */
export const TEMPLATE_TOKENS = 80;

export interface StructuredTry {
  readonly completionId: string;
  readonly seed: number;
  readonly finishReason: Completion['finishReason'];
  /** why the answer could not be used; empty for the one that was */
  readonly problems: readonly string[];
  readonly usage: Usage;
}

export interface StructuredAnswer<T> {
  /** null: both tries were unusable */
  readonly value: T | null;
  readonly tries: readonly StructuredTry[];
  /** summed over tries */
  readonly usage: Usage;
  /** the conversation of the last try, its answer included */
  readonly messages: readonly Message[];
}

export type Parsed<T> = { readonly value: T } | { readonly problems: readonly string[] };

export interface StructuredCall<T> {
  readonly endpoint: Endpoint;
  readonly threadId: string;
  readonly system: string;
  readonly user: string;
  readonly sharedPrefix?: string;
  readonly schema: JsonSchema;
  readonly parse: (content: string) => Parsed<T>;
  /** What the second try is told, put behind the user text. */
  readonly retryNote: (problems: readonly string[], answer: string) => string | Promise<string>;
  readonly sampling: z.infer<typeof SamplingConfig>;
  readonly seed: number;
  readonly callTokens: number;
  readonly signal?: AbortSignal;
}

/** The second try's seed: far from the seeds of other tasks and matches, inside 32 bits. */
export const retrySeed = (seed: number): number => (seed + 1_000_000_007) % 2_147_483_647;

/**
 * Asks for JSON by schema and gives one second chance. The second try repeats the request with a note behind the same
 * text instead of continuing the conversation: a failed answer may fill all the output tokens, and a small context
 * could not hold it; what was shown before stays in the cache either way. Errors of the endpoint pass through.
 */
export async function askStructured<T>(call: StructuredCall<T>): Promise<StructuredAnswer<T>> {
  const one = await askOnce(call, call.user, call.seed);
  if (one.value !== null)
    return { value: one.value, messages: one.messages, tries: [one.record], usage: one.record.usage };
  const note = await call.retryNote(one.record.problems, one.content);
  const two = await askOnce(call, `${call.user}\n\n${note}`, retrySeed(call.seed));
  const tries = [one.record, two.record];
  return { value: two.value, messages: two.messages, tries, usage: sumUsage(tries) };
}

async function askOnce<T>(
  call: StructuredCall<T>,
  user: string,
  seed: number,
): Promise<{ value: T | null; record: StructuredTry; content: string; messages: readonly Message[] }> {
  const prompt: Message[] = [
    { role: 'system', content: call.system },
    { role: 'user', content: user },
  ];
  const completion = await call.endpoint.complete(requestOf(call, prompt, seed));
  const { completionId, finishReason, usage, message } = completion;
  const parsed = call.parse(message.content);
  const problems = 'value' in parsed ? [] : withTruncation(parsed.problems, completion, call.callTokens);
  return {
    value: 'value' in parsed ? parsed.value : null,
    record: { completionId, seed, finishReason, problems, usage },
    content: message.content,
    messages: [...prompt, message],
  };
}

const requestOf = <T>(call: StructuredCall<T>, messages: readonly Message[], seed: number) => ({
  messages,
  responseSchema: call.schema,
  sampling: { ...call.sampling, seed, maxTokens: call.callTokens },
  thread: call.threadId,
  ...(call.sharedPrefix === undefined ? {} : { sharedPrefix: call.sharedPrefix }),
  ...(call.signal === undefined ? {} : { signal: call.signal }),
});

const withTruncation = (problems: readonly string[], completion: Completion, callTokens: number): string[] =>
  completion.finishReason === 'length'
    ? [`the answer was cut off at ${callTokens} tokens`, ...problems]
    : [...problems];

export function sumUsage(tries: readonly StructuredTry[]): Usage {
  const total = { promptTokens: 0, cachedTokens: 0, evaluatedTokens: 0, completionTokens: 0 };
  for (const { usage } of tries) {
    total.promptTokens += usage.promptTokens;
    total.cachedTokens += usage.cachedTokens;
    total.evaluatedTokens += usage.evaluatedTokens;
    total.completionTokens += usage.completionTokens;
  }
  return total;
}

/** Reads `content` as JSON of a schema; problems are short phrases that a model can act on. */
export function parseAnswer<T>(schema: z.ZodType<T>, content: string): Parsed<T> {
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch {
    return { problems: [content.trim() === '' ? 'the answer was empty' : 'the answer was not one JSON object'] };
  }
  const result = schema.safeParse(value);
  if (result.success) return { value: result.data };
  return {
    problems: result.error.issues.slice(0, 4).map((issue) => `${issue.path.join('.') || 'answer'}: ${issue.message}`),
  };
}
