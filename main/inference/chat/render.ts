import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, Message, ToolDefinition } from '../../common/domain/chat.ts';
import type { ServedModel } from '../model/served-model.ts';
import type { SampledTokenLedger } from './chat-format.ts';
import { type Turn, templateMessages, templateTools } from './conversation.ts';
import type { JinjaTemplate } from './jinja-template.ts';
import type { MarkerTokens } from './marker-tokens.ts';
import { canonicalMessageHash } from './message-hash.ts';
import { PromptBuilder } from './prompt-builder.ts';
import { familyOf, suppliedBefore } from './required-call.ts';
import { type Piece, Sentinels, type Slot } from './sentinels.ts';

export interface PromptSource {
  readonly model: Pick<ServedModel, 'info' | 'tokenize' | 'detokenize'>;
  readonly template: JinjaTemplate;
  readonly markers: MarkerTokens;
  /** ids that end an assistant turn */
  readonly endIds: ReadonlySet<number>;
  /** the marker the template ends a turn with */
  readonly turnEnd: number | null;
}

export interface PromptRequest {
  /** of the request, before a format made turns of them */
  readonly messages: readonly Message[];
  readonly turns: readonly Turn[];
  readonly tools: readonly ToolDefinition[];
  readonly thinking: boolean;
  readonly templateVariables: Readonly<Record<string, unknown>>;
  /** Template text after the generation prompt: the start of a required call. */
  readonly supplied: string;
}

export interface Prompt {
  readonly ids: readonly number[];
  readonly forkPoints: readonly number[];
  /** where messages begin, see RenderedPrompt */
  readonly messageStarts: readonly (number | null)[];
  readonly ledgerMisses: number;
  /** The generation prompt ended inside an open reasoning block. */
  readonly reasoningOpen: boolean;
}

const openTag = '<think>';
const closeTag = '</think>';

/**
 * The prompt of a request. The template is rendered once over marks; its text becomes ids with markers, contents become
 * ids without, and answers found in the ledger become the ids that were sampled:
 * - the template keeps the turn's reasoning: generation prompt + sampled ids, so the prompt extends the earlier one;
 * - the template drops it (a later user message): its own header + the sampled ids after `</think>`.
 * The ending id is the template's, whether or not it was sampled.
 */
export function renderPrompt(source: PromptSource, request: PromptRequest, ledger: SampledTokenLedger): Prompt {
  const sentinels = new Sentinels();
  const sampled = findSampled(request.turns, ledger);
  const variables = {
    ...request.templateVariables,
    messages: templateMessages(request.turns, sentinels, new Set(sampled.keys())),
    tools: templateTools(request.tools, sentinels, source.markers),
    enable_thinking: request.thinking,
  };
  const history = source.template.render({ ...variables, add_generation_prompt: false });
  const whole = source.template.render({ ...variables, add_generation_prompt: true });
  const cut = whole.startsWith(history) ? history.length : whole.length;
  const generation = whole.slice(cut);

  const builder = new PromptBuilder(source.markers);
  const { addedBosId } = source.model.info;
  const pieces = sentinels.split(whole.slice(0, cut));
  if (!sentinels.isClean(pieces)) {
    throw new MassError(
      'invalid_input',
      `The chat template of ${source.model.info.id} alters texts; use another model.`,
    );
  }
  new Splicer({ source, request, builder, sampled, sentinels }).write(pieces);
  if (typeof source.markers.split(generation)[0] === 'number') builder.fork();
  builder.template(generation + request.supplied);
  const { ids, forkPoints, starts } = builder.finish();
  const missingBos = addedBosId !== null && ids[0] !== addedBosId;
  const shift = missingBos ? 1 : 0;
  return {
    ids: missingBos ? [addedBosId, ...ids] : ids,
    forkPoints: forkPoints.map((at) => at + shift),
    messageStarts: messageStarts(request, starts, shift),
    ledgerMisses: request.turns.filter(({ source: answer }) => answer !== null).length - sampled.size,
    reasoningOpen: generation.trimEnd().endsWith(openTag),
  };
}

function messageStarts(
  { messages, turns }: PromptRequest,
  starts: ReadonlyMap<number, number>,
  shift: number,
): (number | null)[] {
  const out = new Array<number | null>(messages.length + 1).fill(null);
  turns.forEach(({ index }, turn) => {
    const at = starts.get(turn);
    if (index !== null && at !== undefined) out[index] = at + shift;
  });
  // The template's beginning, tools and all, belongs to the first message.
  if (messages.length > 0) out[0] = 0;
  const answer = starts.get(turns.length);
  out[messages.length] = answer === undefined ? null : answer + shift;
  return out;
}

function findSampled(turns: readonly Turn[], ledger: SampledTokenLedger): Map<number, readonly number[]> {
  const sampled = new Map<number, readonly number[]>();
  turns.forEach(({ source }, i) => {
    const ids = source === null ? undefined : ledger.find(canonicalMessageHash(source));
    if (ids !== undefined) sampled.set(i, ids);
  });
  return sampled;
}

/** What the template appends to ask for an answer. */
export function generationPrompt(
  template: JinjaTemplate,
  thinking: boolean,
  templateVariables: Readonly<Record<string, unknown>>,
): string {
  const variables = { ...templateVariables, messages: [{ role: 'user', content: 'x' }], tools: null };
  const render = (add: boolean) =>
    template.render({ ...variables, enable_thinking: thinking, add_generation_prompt: add });
  const history = render(false);
  const whole = render(true);
  return whole.startsWith(history) ? whole.slice(history.length) : '';
}

interface SplicerOptions {
  readonly source: PromptSource;
  readonly request: PromptRequest;
  readonly builder: PromptBuilder;
  readonly sampled: ReadonlyMap<number, readonly number[]>;
  readonly sentinels: Sentinels;
}

class Splicer {
  readonly #options: SplicerOptions;
  readonly #thinkingPrompt: string;
  readonly #plainPrompt: string;
  readonly #header: string;
  #sawUser = false;
  /** The header before the reasoning block was left out, because the generation prompt repeats it. */
  #headerCut = false;
  /** The turn of the piece written last. */
  #turn: number | null = null;

  constructor(options: SplicerOptions) {
    this.#options = options;
    const { request, source } = options;
    this.#thinkingPrompt = generationPrompt(source.template, true, request.templateVariables);
    this.#plainPrompt = generationPrompt(source.template, false, request.templateVariables);
    this.#header = commonPrefix(this.#thinkingPrompt, this.#plainPrompt);
  }

  write(pieces: readonly Piece[]): void {
    const { sentinels } = this.#options;
    for (let i = 0; i < pieces.length; i++) {
      const piece = pieces[i];
      if (piece === undefined) continue;
      if (piece.kind === 'template') {
        this.#between(piece.text, pieces[i + 1]);
        continue;
      }
      this.#turn = sentinels.turnOf(piece.slot) ?? this.#turn;
      if (piece.slot.kind === 'reasoning') {
        // Up to its answer the turn is the generation prompt and what was sampled, not the template's rendering.
        const { turn } = piece.slot;
        while (i + 1 < pieces.length && !isAnswer(pieces[i + 1], turn)) i++;
        if (isAnswer(pieces[i + 1], turn)) i++;
        this.#answer(turn, true);
      } else this.#slot(piece.slot, piece.jsonEscaped);
    }
  }

  #between(text: string, next: Piece | undefined): void {
    const opens = next?.kind === 'slot' && next.slot.kind === 'reasoning';
    const headerAt = opens && this.#header !== '' ? text.lastIndexOf(this.#header) : -1;
    this.#headerCut = headerAt >= 0;
    this.#template(headerAt >= 0 ? text.slice(0, headerAt) : text, next);
  }

  /** Where the text leads from one turn to the next, the builder is told; after the last slot the answer is next. */
  #template(text: string, next: Piece | undefined): void {
    const { builder, request, sentinels, source } = this.#options;
    const follows =
      next?.kind === 'slot' ? sentinels.turnOf(next.slot) : next === undefined ? request.turns.length : null;
    if (follows === null || this.#turn === null || follows === this.#turn) builder.template(text);
    else builder.leadIn(text, { turn: follows, endId: source.turnEnd });
  }

  #slot(slot: Exclude<Slot, { kind: 'reasoning' }>, jsonEscaped: boolean): void {
    const { builder } = this.#options;
    if (slot.kind === 'answer') {
      this.#answer(slot.turn, false);
      return;
    }
    if (slot.user && !this.#sawUser) {
      this.#sawUser = true;
      builder.forkBeforeTurn();
    }
    const text = (part: string) => builder.content(jsonEscaped ? JSON.stringify(part).slice(1, -1) : part);
    if (slot.forkAt === null) {
      text(slot.text);
      return;
    }
    text(slot.text.slice(0, slot.forkAt));
    builder.fork();
    text(slot.text.slice(slot.forkAt));
  }

  #answer(turn: number, keepsReasoning: boolean): void {
    const { builder, sampled, request } = this.#options;
    const message = request.turns[turn]?.source;
    const all = sampled.get(turn);
    if (message === undefined || message === null || all === undefined) return;
    const ids = this.#withoutEnd(all);
    const closedAt = this.#saysClose(ids, message) ? -1 : this.#closeOf(ids);
    const unclosed = closedAt < 0 && this.#brokeOffThinking(message);
    if (keepsReasoning) {
      const prompt = closedAt >= 0 || unclosed ? this.#thinkingPrompt : this.#plainPrompt;
      if (this.#headerCut) builder.template(prompt);
      builder.template(this.#supplied(ids, message));
      builder.ids(ids);
      return;
    }
    builder.template(this.#supplied(ids, message));
    builder.ids(unclosed ? [] : this.#withoutLeadingSpace(ids, this.#mayReason(ids) ? closedAt + 1 : 0));
  }

  /** The prompt opens a reasoning block, or the answer does; elsewhere `</think>` is what the model said. */
  #mayReason(ids: readonly number[]): boolean {
    if (this.#thinkingPrompt.trimEnd().endsWith(openTag)) return true;
    const { model } = this.#options.source;
    return model.detokenize(ids.slice(0, 16), { special: true }).trimStart().startsWith(openTag);
  }

  /** The answer has no reasoning, for its text is all that was sampled; `</think>` in it is what the model said. */
  #saysClose(ids: readonly number[], { content }: AssistantMessage): boolean {
    const said = content.trim();
    if (!said.includes(closeTag)) return false;
    return this.#options.source.model.detokenize(ids, { special: true }).trimStart().startsWith(said);
  }

  /** Index of the id that ends the first `</think>`, which may be spelled with several ids; -1 without one. */
  #closeOf(ids: readonly number[]): number {
    const { markers, model } = this.#options.source;
    const closeId = markers.idOf(closeTag);
    if (closeId !== null) return ids.indexOf(closeId);
    let text = '';
    return ids.findIndex((id) => {
      text = (text + model.detokenize([id], { special: true })).slice(-64);
      return text.includes(closeTag);
    });
  }

  /** Thinking was on and the length ended: the answer has no text and no call, so all of it was reasoning. */
  #brokeOffThinking(message: AssistantMessage): boolean {
    return (
      this.#thinkingPrompt.trimEnd().endsWith(openTag) &&
      message.content.trim() === '' &&
      (message.toolCalls ?? []).length === 0
    );
  }

  /** The start of a required call was in the prompt, not among the sampled ids. */
  #supplied(ids: readonly number[], message: AssistantMessage): string {
    const [first] = message.toolCalls ?? [];
    const { source } = this.#options;
    const family = familyOf(source.template.source);
    if (first === undefined || family === 'json') return '';
    return suppliedBefore(family, source.model.detokenize(ids, { special: true }), first.name);
  }

  #withoutEnd(ids: readonly number[]): readonly number[] {
    let length = ids.length;
    while (length > 0 && this.#options.source.endIds.has(ids[length - 1] ?? -1)) length--;
    return ids.slice(0, length);
  }

  /** From `start` on, without ids that are white space only: the template trims an answer whose reasoning it drops. */
  #withoutLeadingSpace(ids: readonly number[], start: number): readonly number[] {
    if (start === 0) return ids;
    let from = start;
    const { model } = this.#options.source;
    while (from < ids.length && model.detokenize([ids[from] ?? 0], { special: true }).trim() === '') from++;
    return ids.slice(from);
  }
}

const isAnswer = (piece: Piece | undefined, turn: number): boolean =>
  piece?.kind === 'slot' && piece.slot.kind === 'answer' && piece.slot.turn === turn;

function commonPrefix(a: string, b: string): string {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return a.slice(0, length);
}
