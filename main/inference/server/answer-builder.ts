import type { AssistantMessage } from '../../common/domain/chat.ts';
import type { ChatDelta, ChatFormat, CompletionParser, RenderedPrompt } from '../chat/chat-format.ts';
import type { ServedModel } from '../model/served-model.ts';
import { IncrementalDecoder, StopTextFilter } from './incremental-decoder.ts';

export interface AnswerOptions {
  readonly model: Pick<ServedModel, 'info' | 'detokenize'>;
  readonly format: ChatFormat;
  readonly rendered: Pick<RenderedPrompt, 'parserState' | 'stopIds'>;
  readonly stopTexts: readonly string[];
  /** Calls get `call_<seed>_<index>`, so the same completion always has the same ids. */
  readonly callIdSeed: string;
  readonly onDelta?: ((delta: ChatDelta) => void) | undefined;
}

/** Sampled ids -> text -> pieces of the message, as they come. Streamed and plain answers take this one path. */
export class AnswerBuilder {
  readonly #options: AnswerOptions;
  readonly #decoder: IncrementalDecoder;
  readonly #filter: StopTextFilter;
  readonly #parser: CompletionParser;
  readonly #endIds: ReadonlySet<number>;
  #taken = 0;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#decoder = new IncrementalDecoder((ids) => options.model.detokenize(ids, { special: true }));
    this.#filter = new StopTextFilter(options.stopTexts);
    this.#parser = options.format.parser(options.rendered.parserState);
    this.#endIds = new Set([...options.model.info.endIds, ...options.rendered.stopIds]);
  }

  /** Number of ids taken so far. */
  get taken(): number {
    return this.#taken;
  }

  push(ids: readonly number[]): void {
    this.#taken += ids.length;
    const textIds = ids.filter((id) => !this.#endIds.has(id));
    if (textIds.length > 0) this.#parse(this.#decoder.push(textIds));
  }

  /** `truncated`: the completion ended by length. */
  finish(truncated: boolean): AssistantMessage {
    this.#parse(this.#decoder.finish());
    const rest = this.#filter.finish();
    if (rest !== '') this.#emit(this.#parser.push(rest));
    const { deltas, message } = this.#parser.finish(truncated);
    this.#emit(deltas);
    const calls = message.toolCalls;
    if (calls === undefined) return message;
    return { ...message, toolCalls: calls.map((call, index) => ({ ...call, id: this.#callId(index) })) };
  }

  #parse(text: string): void {
    const visible = this.#filter.push(text);
    if (visible !== '') this.#emit(this.#parser.push(visible));
  }

  #emit(deltas: readonly ChatDelta[]): void {
    const { onDelta } = this.#options;
    if (onDelta === undefined) return;
    for (const delta of deltas) {
      onDelta(delta.kind === 'tool-call' ? { ...delta, id: this.#callId(delta.index) } : delta);
    }
  }

  #callId(index: number): string {
    return `call_${this.#options.callIdSeed}_${index}`;
  }
}

/** The pieces of a whole message, for an answer that is not sampled now. */
export function deltasOf(message: AssistantMessage): ChatDelta[] {
  const deltas: ChatDelta[] = [];
  if (message.reasoning) deltas.push({ kind: 'reasoning', text: message.reasoning });
  if (message.content !== '') deltas.push({ kind: 'content', text: message.content });
  message.toolCalls?.forEach((call, index) => {
    deltas.push({ kind: 'tool-call', index, ...call });
  });
  return deltas;
}
