import type {
  AssistantMessage,
  FinishReason,
  Message,
  Sampling,
  ToolDefinition,
  Usage,
} from '../../common/domain/chat.ts';

export type JsonSchema = Readonly<Record<string, unknown>>;

export interface CompletionRequest {
  readonly messages: readonly Message[];
  readonly tools?: readonly ToolDefinition[];
  /** `none` forbids calls, `required` forces one, a name forces a call of that tool first; default `auto` */
  readonly toolChoice?: 'auto' | 'none' | 'required' | { readonly name: string };
  /** JSON Schema the content (after the reasoning) must satisfy */
  readonly responseSchema?: JsonSchema;
  readonly sampling: Sampling;
  /** Which conversation this is: a thread id of the store */
  readonly thread: string;
  /** Text of the last shared message's prefix that others share (a judge's first submission): branch after it. */
  readonly sharedPrefix?: string;
  readonly signal?: AbortSignal;
}

export interface Completion {
  readonly completionId: string;
  readonly message: AssistantMessage;
  readonly finishReason: FinishReason;
  readonly usage: Usage;
}

/**
 * A model that completes conversations on behalf of one owner (an attempt, a judgment, a proposal). When `complete`
 * resolves, the completion is recorded. Errors: MassError `invalid_input` with details.reason
 * `context_length_exceeded` and details.promptTokens / details.contextTokens; `infrastructure` when the endpoint failed
 * after its own retries (never a model's result); `cancelled`.
 */
export interface Endpoint {
  readonly contextTokens: number;
  complete(request: CompletionRequest): Promise<Completion>;
  /** Tokens of `text` by the served model's tokenizer. */
  countTokens(text: string): Promise<number>;
}

/** Hands out endpoints bound to an owner; closing revokes the owner's token. */
export interface EndpointProvider {
  open(owner: string): Promise<Endpoint & { close(): Promise<void> }>;
}
