import { createHash } from 'node:crypto';
import type { AssistantMessage, Message } from '../../common/domain/chat.ts';
import type {
  ChatDelta,
  ChatFormat,
  ChatRequest,
  CompletionParser,
  CreateChatFormat,
  RenderedPrompt,
  SampledTokenLedger,
} from '../chat/chat-format.ts';

/** A small chat format for tests of the endpoint: `<think>...</think>`, then text, then `CALL name {json}` lines. */
export const createScriptedFormat: CreateChatFormat = (model): ChatFormat => ({
  family: 'json',
  render(request: ChatRequest, ledger: SampledTokenLedger): RenderedPrompt {
    const promptIds: number[] = [];
    const add = (text: string) => promptIds.push(...model.tokenize(text, { special: true }));
    let ledgerMisses = 0;
    if (request.tools.length > 0) add(`<|im_start|>tools\n${request.tools.map((t) => t.name).join(' ')}\n`);
    for (const message of request.messages) {
      add(`<|im_start|>${message.role}\n`);
      const sampled = message.role === 'assistant' ? ledger.find(hashMessage(message)) : undefined;
      if (sampled !== undefined) promptIds.push(...sampled);
      else promptIds.push(...model.tokenize(plainText(message), { special: false }));
      if (message.role === 'assistant' && sampled === undefined) ledgerMisses++;
      if (promptIds.at(-1) !== model.info.endIds[0]) add('<|im_end|>');
    }
    add('<|im_start|>assistant\n');
    return {
      promptIds,
      forkPoints: [],
      messageStarts: [],
      grammar: request.responseSchema === null ? null : { schema: request.responseSchema, afterId: null },
      stopIds: [],
      ledgerMisses,
      parserState: { reasoningOpen: false, expectsJsonAction: false },
    };
  },
  parser: () => new ScriptedParser(),
});

export const hashMessage = (message: AssistantMessage): string =>
  createHash('sha256')
    .update(JSON.stringify([message.content, (message.toolCalls ?? []).map((call) => [call.name, call.arguments])]))
    .digest('hex');

export function createMapLedger(): SampledTokenLedger {
  const held = new Map<string, readonly number[]>();
  return { find: (hash) => held.get(hash), add: (hash, ids) => void held.set(hash, [...ids]) };
}

function plainText(message: Message): string {
  if (message.role !== 'assistant') return message.content;
  const calls = (message.toolCalls ?? []).map((call) => `\nCALL ${call.name} ${call.arguments}`);
  return message.content + calls.join('');
}

/** Reasoning is given out as it comes, everything else at the end. */
class ScriptedParser implements CompletionParser {
  #text = '';
  #givenReasoning = '';
  #givenContent = '';

  push(text: string): ChatDelta[] {
    this.#text += text;
    const { reasoning, content } = this.#split();
    const deltas: ChatDelta[] = [];
    const moreReasoning = reasoning.slice(this.#givenReasoning.length);
    if (moreReasoning !== '') deltas.push({ kind: 'reasoning', text: moreReasoning });
    this.#givenReasoning = reasoning;
    const safe = content.includes('\nC') ? this.#givenContent : content.replace(/\n$/, '');
    const moreContent = safe.slice(this.#givenContent.length);
    if (moreContent !== '') deltas.push({ kind: 'content', text: moreContent });
    this.#givenContent = safe;
    return deltas;
  }

  finish(truncated: boolean): { deltas: ChatDelta[]; message: AssistantMessage } {
    const { reasoning, content: all } = this.#split();
    const lines = all.split('\n');
    const calls = truncated ? [] : lines.flatMap((line) => /^CALL (\S+) (.*)$/.exec(line) ?? []);
    const toolCalls = [];
    for (let i = 0; i < calls.length; i += 3) {
      toolCalls.push({ id: `c${i / 3}`, name: calls[i + 1] ?? '', arguments: calls[i + 2] ?? '' });
    }
    const content = toolCalls.length === 0 ? all : lines.filter((line) => !line.startsWith('CALL ')).join('\n');
    const deltas: ChatDelta[] = [];
    const rest = content.slice(this.#givenContent.length);
    if (rest !== '') deltas.push({ kind: 'content', text: rest });
    toolCalls.forEach((call, index) => {
      deltas.push({ kind: 'tool-call', index, ...call });
    });
    const message: AssistantMessage = {
      role: 'assistant',
      content,
      ...(reasoning === '' ? {} : { reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
    };
    return { deltas, message };
  }

  #split(): { reasoning: string; content: string } {
    if (!this.#text.startsWith('<think>')) return { reasoning: '', content: this.#text };
    const [reasoning = '', content = ''] = this.#text.slice('<think>'.length).split('</think>');
    return { reasoning, content };
  }
}
