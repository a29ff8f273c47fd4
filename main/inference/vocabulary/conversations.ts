import type { AssistantMessage, ToolDefinition } from '../../common/domain/chat.ts';
import type { KnownAnswer, LearnRequest, Rendered, RenderRequest } from '../../common/protocol/vocabulary.ts';
import type { ChatFormat, ChatRequest, RenderedPrompt, SampledTokenLedger } from '../chat/chat-format.ts';
import { type ChatModel, createChatFormat } from '../chat/create-chat-format.ts';
import { canonicalMessageHash } from '../chat/message-hash.ts';
import { AnswerBuilder } from '../server/answer-builder.ts';

interface Entry {
  /** number of the answer, in the order of recording */
  readonly at: number;
  readonly ids: readonly number[];
}

/** Answers of one owner, so that the ledger of any earlier moment can be had. */
class AnswerHistory {
  readonly #entries = new Map<string, Entry[]>();
  #count = 0;

  add(message: AssistantMessage, ids: readonly number[]): void {
    const key = canonicalMessageHash(message);
    const entries = this.#entries.get(key) ?? [];
    entries.push({ at: this.#count++, ids });
    this.#entries.set(key, entries);
  }

  /** As when `answers` of them were known: among equal messages the newest counts. */
  before(answers: number): SampledTokenLedger {
    return {
      find: (hash) => this.#entries.get(hash)?.findLast((entry) => entry.at < answers)?.ids,
      add: () => undefined,
    };
  }
}

/** Renders recorded conversations anew, by the code that rendered them when they were sampled. */
export class Conversations {
  readonly #model: ChatModel;
  readonly #histories = new Map<string, AnswerHistory>();
  #format: { readonly now: number; readonly format: ChatFormat } | null = null;

  constructor(model: ChatModel) {
    this.#model = model;
  }

  get family(): ChatFormat['family'] {
    return this.#formatAt(Date.now()).family;
  }

  /** Remembers answers; returns the indexes of those whose ids are not the tokens of their message. */
  learn({ owner, tools, answers }: LearnRequest): number[] {
    const history = this.#histories.get(owner) ?? new AnswerHistory();
    this.#histories.set(owner, history);
    return answers.flatMap((answer, index) => {
      const ids = [...answer.sampledIds];
      history.add(answer.message, ids);
      return this.#spells(ids, answer, tools) ? [] : [index];
    });
  }

  render(request: RenderRequest): Rendered {
    const { owner, answers, messages, tools, thinking, now } = request;
    const history = this.#histories.get(owner) ?? new AnswerHistory();
    const rendered = this.#formatAt(now).render(ask({ messages, tools, thinking }), history.before(answers));
    return { ids: Uint32Array.from(rendered.promptIds), starts: [...rendered.messageStarts] };
  }

  spell(pieces: readonly Uint32Array[]): string[] {
    return pieces.map((ids) => this.#model.detokenize([...ids], { special: true }));
  }

  forget(owner: string): void {
    this.#histories.delete(owner);
  }

  /** Whether calls were read is not recorded: the message tells. */
  #spells(ids: readonly number[], answer: KnownAnswer, tools: readonly ToolDefinition[]): boolean {
    const choices = tools.length === 0 ? (['auto'] as const) : (['auto', 'none'] as const);
    return choices.some((toolChoice) => {
      const messages = [{ role: 'user', content: 'x' }] as const;
      const request = ask({ messages, tools, thinking: answer.thinking, toolChoice });
      const rendered = this.#formatAt(Date.now()).render(request, { find: () => undefined, add: () => undefined });
      return sameMessage(this.#read(ids, answer, rendered), answer.message);
    });
  }

  #read(ids: readonly number[], { stopTexts, truncated }: KnownAnswer, rendered: RenderedPrompt): AssistantMessage {
    const builder = new AnswerBuilder({
      model: this.#model,
      format: this.#formatAt(Date.now()),
      rendered,
      stopTexts,
      callIdSeed: '',
    });
    builder.push(ids);
    return builder.finish(truncated);
  }

  /** Making a format reads the whole vocabulary, so one is kept as long as the date cannot matter. */
  #formatAt(now: number): ChatFormat {
    const dated = this.#model.info.chatTemplate?.includes('strftime_now') ?? false;
    if (this.#format === null || (dated && this.#format.now !== now))
      this.#format = { now, format: createChatFormat(this.#model, { now: new Date(now) }) };
    return this.#format.format;
  }
}

const ask = (given: Partial<ChatRequest> & Pick<ChatRequest, 'messages' | 'tools' | 'thinking'>): ChatRequest => ({
  toolChoice: 'auto',
  responseSchema: null,
  templateVariables: {},
  sharedPrefix: null,
  maxTokens: null,
  ...given,
});

/** Equal texts and calls; ids of calls name the completion, not what was said. */
function sameMessage(a: AssistantMessage, b: AssistantMessage): boolean {
  const spoken = ({ content, reasoning, toolCalls }: AssistantMessage) =>
    JSON.stringify([content, reasoning ?? '', (toolCalls ?? []).map((call) => [call.name, call.arguments])]);
  return spoken(a) === spoken(b);
}
