import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, Message } from '../../common/domain/chat.ts';
import { commonPrefix } from '../../common/domain/completion-chain.ts';
import type { SampledRange } from '../../common/domain/window-units.ts';
import type { CompletionRow } from '../store/repositories/threads.ts';
import type { Store } from '../store/store.ts';
import { completionIds, completionMessages } from './record-completion.ts';

/** Completions of a thread whose prompts extend each other and answer the same user message. */
export interface ThreadSegment {
  /** in the order of recording; never empty */
  readonly completions: readonly CompletionRow[];
  /** the last completion's exact prompt, then what it sampled */
  readonly ids: Uint32Array;
  readonly promptTokens: number;
  /** of the last completion's request */
  readonly messages: readonly Message[];
  /** where sampled ids lie in `ids`: those of the completions, and those of earlier segments that `ids` begins with */
  readonly sampled: readonly SampledRange[];
  /** how many leading tokens an earlier segment has too; 0 for the first */
  readonly shared: number;
  /** index of the user message that is answered */
  readonly query: number;
  /** no earlier segment of the thread answers this message */
  readonly newQuery: boolean;
}

/** How many completions of a thread are kept for later ones to refer to: a record refers to one of the latest eight. */
const KEPT = 12;

/**
 * The segments of a thread, one at a time. Each body is read once and ids are copied only where a prompt departs from an
 * earlier one, so a thread costs time linear in its length. Bounded memory: the latest completions only.
 */
export function* threadSegments(store: Store, threadId: string): Generator<ThreadSegment> {
  const walker = new ThreadWalker(store);
  let open: OpenSegment | null = null;
  const queries = new Set<number>();
  for (const row of store.threads.completions(threadId)) {
    const step = walker.add(row, open?.last ?? null);
    if (open === null || !step.extendsLast || step.query !== open.first.query) {
      if (open !== null) yield close(open);
      open = { first: step, last: step, completions: [], newQuery: !queries.has(step.query) };
      queries.add(step.query);
    }
    open.last = step;
    open.completions.push(row);
  }
  if (open !== null) yield close(open);
}

interface OpenSegment {
  readonly first: Step;
  last: Step;
  readonly completions: CompletionRow[];
  readonly newQuery: boolean;
}

const close = ({ first, last, completions, newQuery }: OpenSegment): ThreadSegment => ({
  completions,
  ids: last.ids(),
  promptTokens: last.promptTokens,
  messages: last.messages,
  sampled: last.sampled,
  shared: first.shared,
  query: first.query,
  newQuery,
});

/** One completion, rebuilt. */
interface Step {
  readonly completionId: string;
  readonly promptTokens: number;
  readonly length: number;
  readonly ids: () => Uint32Array;
  readonly messages: readonly Message[];
  readonly answer: AssistantMessage;
  readonly sampled: readonly SampledRange[];
  readonly shared: number;
  readonly query: number;
  /** its prompt begins with the whole of the completion before it */
  readonly extendsLast: boolean;
}

class ThreadWalker {
  readonly #store: Store;
  readonly #steps = new Map<string, Step & { readonly buffer: GrowingIds }>();

  constructor(store: Store) {
    this.#store = store;
  }

  add(row: CompletionRow, last: Step | null): Step {
    const { artifacts } = this.#store;
    const parent = row.parentCompletionId === null ? undefined : this.#steps.get(row.parentCompletionId);
    const { buffer, promptTokens } = this.#prompt(row, parent);
    if (promptTokens !== row.promptTokens)
      throw new MassError('internal', `Completion ${row.completionId} has not the prompt it was recorded with.`);
    const link = this.#link(row, { parent, last, prompt: buffer.view(promptTokens) });
    buffer.append(artifacts.ids(row.sampledHash));
    const { length } = buffer;
    const messages = this.#messages(row, parent);
    const step = {
      completionId: row.completionId,
      buffer,
      promptTokens,
      length,
      ids: () => buffer.view(length),
      messages,
      answer: artifacts.json(row.answerHash) as AssistantMessage,
      sampled: [
        ...link.sampled.filter((range) => range.end <= link.shared),
        { completionId: row.completionId, start: promptTokens, end: length },
      ],
      shared: link.shared,
      query: messages.findLastIndex((message) => message.role === 'user'),
      extendsLast: last !== null && link.extendsLast,
    };
    this.#steps.set(row.completionId, step);
    const [oldest] = this.#steps.keys();
    if (this.#steps.size > KEPT && oldest !== undefined) this.#steps.delete(oldest);
    return step;
  }

  /** A prompt that goes on where its parent ended is written behind it; any other gets a copy of what it shares. */
  #prompt(
    row: CompletionRow,
    parent: (Step & { readonly buffer: GrowingIds }) | undefined,
  ): { buffer: GrowingIds; promptTokens: number } {
    const { artifacts } = this.#store;
    if (row.parentCompletionId !== null && parent === undefined) {
      const { prompt } = completionIds(this.#store, row.completionId);
      return { buffer: GrowingIds.of(prompt), promptTokens: prompt.length };
    }
    const tail = artifacts.ids(row.promptTailHash);
    const goesOn = parent !== undefined && row.parentPrefix === parent.length && parent.buffer.length === parent.length;
    const buffer = goesOn ? parent.buffer : GrowingIds.of(parent?.buffer.view(row.parentPrefix) ?? []);
    buffer.append(tail);
    return { buffer, promptTokens: buffer.length };
  }

  /** What the prompt has in common with an earlier completion. A record without a parent may still continue one: the process that knew it may have been replaced. */
  #link(
    row: CompletionRow,
    { parent, last, prompt }: { parent: Step | undefined; last: Step | null; prompt: Uint32Array },
  ): { shared: number; sampled: readonly SampledRange[]; extendsLast: boolean } {
    if (parent !== undefined && parent.completionId === last?.completionId)
      return { shared: row.parentPrefix, sampled: parent.sampled, extendsLast: row.parentPrefix === last.length };
    if (last === null) return { shared: 0, sampled: [], extendsLast: false };
    const shared = commonPrefix(last.ids(), prompt);
    if (parent !== undefined && row.parentPrefix > shared)
      return { shared: row.parentPrefix, sampled: parent.sampled, extendsLast: false };
    return { shared, sampled: last.sampled, extendsLast: shared === last.length };
  }

  #messages(row: CompletionRow, parent: Step | undefined): readonly Message[] {
    if (row.messagePrefix > 0 && parent === undefined) return completionMessages(this.#store, row.completionId);
    const tail = this.#store.artifacts.json(row.messagesTailHash) as Message[];
    const before = parent === undefined ? [] : [...parent.messages, parent.answer].slice(0, row.messagePrefix);
    return [...before, ...tail];
  }
}

/** Token ids that grow at the end; views stay valid. */
class GrowingIds {
  #ids: Uint32Array;
  length = 0;

  constructor(capacity: number) {
    this.#ids = new Uint32Array(Math.max(1024, capacity));
  }

  static of(ids: ArrayLike<number>): GrowingIds {
    const out = new GrowingIds(2 * ids.length);
    out.append(ids);
    return out;
  }

  append(ids: ArrayLike<number>): void {
    const needed = this.length + ids.length;
    if (needed > this.#ids.length) {
      const larger = new Uint32Array(2 * needed);
      larger.set(this.#ids.subarray(0, this.length));
      this.#ids = larger;
    }
    this.#ids.set(ids, this.length);
    this.length = needed;
  }

  view(length: number): Uint32Array {
    return this.#ids.subarray(0, length);
  }
}
