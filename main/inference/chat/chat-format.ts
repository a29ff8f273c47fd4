import type { AssistantMessage, Message, ToolDefinition } from '../../common/domain/chat.ts';
import type { JsonSchema, ServedModel } from '../model/served-model.ts';

export interface ChatRequest {
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDefinition[];
  readonly toolChoice: 'auto' | 'none' | 'required' | { readonly name: string };
  /** `null`: free text; `{}`: any JSON object */
  readonly responseSchema: JsonSchema | null;
  readonly thinking: boolean;
  /** Further template variables (`chat_template_kwargs`). */
  readonly templateVariables: Readonly<Record<string, unknown>>;
  /** Leading part of the last user message's text that other requests share. */
  readonly sharedPrefix: string | null;
  /** Tokens the answer may have, so that a constrained answer can be kept short enough to end; null: no limit of its own. */
  readonly maxTokens: number | null;
}

export interface RenderedPrompt {
  readonly promptIds: readonly number[];
  /** prompt lengths at which other requests are expected to branch, ascending */
  readonly forkPoints: readonly number[];
  /**
   * Where each message of the request begins in `promptIds`, and last where the answer begins (its role header counts as
   * its own). Null: it shares a turn with the message before it (a second tool result), or the template marks no turns.
   */
  readonly messageStarts: readonly (number | null)[];
  readonly grammar: { readonly schema: JsonSchema; readonly afterId: number | null } | null;
  readonly stopIds: readonly number[];
  readonly ledgerMisses: number;
  /** What a parser must know of the prompt: e.g. that `<think>\n` was already supplied. */
  readonly parserState: ParserState;
}

export interface ParserState {
  readonly reasoningOpen: boolean;
  readonly expectsJsonAction: boolean;
  /** Tools whose calls are parsed; absent or empty: whatever looks like a call is content. */
  readonly tools?: readonly ToolDefinition[];
  /** Beginning of the answer that the prompt supplied and nobody sampled, e.g. `<tool_call>\n` of a required call. */
  readonly supplied?: string;
}

/** Pieces of a streamed answer, in order; joined they equal the parsed message. */
export type ChatDelta =
  | { readonly kind: 'reasoning'; readonly text: string }
  | { readonly kind: 'content'; readonly text: string }
  | {
      readonly kind: 'tool-call';
      readonly index: number;
      readonly id: string;
      readonly name: string;
      readonly arguments: string;
    };

/** Incremental parser of one completion; feed it text as it is decoded, then finish. */
export interface CompletionParser {
  push(text: string): ChatDelta[];
  /** `truncated`: the completion ended by length; an unfinished call becomes content and is never executed. */
  finish(truncated: boolean): { deltas: ChatDelta[]; message: AssistantMessage };
}

/** Sampled ids of assistant messages by canonical hash, per owner (an episode). */
export interface SampledTokenLedger {
  find(messageHash: string): readonly number[] | undefined;
  add(messageHash: string, sampledIds: readonly number[]): void;
}

/**
 * How a model family writes conversations. `render` takes the model's own Jinja template for everything the model did
 * not produce, and splices the recorded sampled ids for what it did.
 */
export interface ChatFormat {
  readonly family: 'qwen-xml' | 'hermes' | 'json';
  render(request: ChatRequest, ledger: SampledTokenLedger): RenderedPrompt;
  parser(state: ParserState): CompletionParser;
}

/** `now`: what a template that asks for the date is told; by default the moment of the call. */
export type CreateChatFormat = (
  model: Pick<ServedModel, 'info' | 'tokenize' | 'detokenize'>,
  options?: { readonly now?: Date },
) => ChatFormat;
