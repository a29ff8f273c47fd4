import { randomUUID } from 'node:crypto';
import type { AssistantMessage, ToolCall } from '../../common/domain/chat.ts';
import type { ChatDelta, CompletionParser, ParserState } from './chat-format.ts';
import { ReasoningSplit, TrimmedText } from './reasoning-split.ts';

/** Parses what follows the reasoning block. Both give their finds to the sink, in order. */
export interface BodyParser {
  push(text: string): void;
  finish(truncated: boolean): void;
}

export interface ParsedSink {
  content(text: string): void;
  call(name: string, args: Readonly<Record<string, unknown>>): void;
}

/** The reasoning block, then a body; collects the deltas and the message that they add up to. */
export class ReasoningThenBody implements CompletionParser {
  readonly #split: ReasoningSplit;
  readonly #body: BodyParser;
  readonly #reasoning = new TrimmedText();
  readonly #calls: ToolCall[] = [];
  readonly #supplied: string;
  #content = '';
  #deltas: ChatDelta[] = [];
  #began = false;

  constructor(state: ParserState, createBody: (sink: ParsedSink) => BodyParser) {
    this.#split = new ReasoningSplit(state.reasoningOpen);
    this.#supplied = state.supplied ?? '';
    this.#body = createBody({
      content: (text) => {
        if (text === '') return;
        this.#content += text;
        this.#deltas.push({ kind: 'content', text });
      },
      call: (name, args) => {
        const call = { id: `call_${randomUUID()}`, name, arguments: JSON.stringify(args) };
        this.#deltas.push({ kind: 'tool-call', index: this.#calls.length, ...call });
        this.#calls.push(call);
      },
    });
  }

  push(text: string): ChatDelta[] {
    this.#begin();
    this.#take(this.#split.push(text));
    return this.#flush();
  }

  finish(truncated: boolean): { deltas: ChatDelta[]; message: AssistantMessage } {
    this.#begin();
    this.#take(this.#split.finish());
    this.#body.finish(truncated);
    const deltas = this.#flush();
    const reasoning = this.#reasoning.text;
    const message: AssistantMessage = {
      role: 'assistant',
      content: this.#content,
      ...(reasoning === '' ? {} : { reasoning }),
      ...(this.#calls.length === 0 ? {} : { toolCalls: [...this.#calls] }),
    };
    return { deltas, message };
  }

  #begin(): void {
    if (this.#began) return;
    this.#began = true;
    if (this.#supplied !== '') this.#take(this.#split.push(this.#supplied));
  }

  #take({ reasoning, body }: { reasoning: string; body: string }): void {
    const text = reasoning === '' ? '' : this.#reasoning.push(reasoning);
    if (text !== '') this.#deltas.push({ kind: 'reasoning', text });
    if (body !== '') this.#body.push(body);
  }

  #flush(): ChatDelta[] {
    const deltas = this.#deltas;
    this.#deltas = [];
    return deltas;
  }
}

/** A body without calls: trimmed text. */
export class PlainBody implements BodyParser {
  readonly #sink: ParsedSink;
  readonly #text = new TrimmedText();

  constructor(sink: ParsedSink) {
    this.#sink = sink;
  }

  push(text: string): void {
    this.#sink.content(this.#text.push(text));
  }

  finish(): void {
    // The white space held back at the end is not content.
  }
}
