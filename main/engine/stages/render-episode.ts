import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, ToolDefinition } from '../../common/domain/chat.ts';
import { Sampling } from '../../common/domain/chat.ts';
import { commonPrefix } from '../../common/domain/completion-chain.ts';
import { replaceTeacherPrompt } from '../../common/domain/teacher-prompt.ts';
import { buildWindows, type Segment, type WindowDraft, type WindowLimits } from '../../common/domain/window-builder.ts';
import type { WindowRole } from '../../common/domain/window-set.ts';
import { type CutUnit, cutUnits } from '../../common/domain/window-units.ts';
import { stringsOf } from '../../common/domain/word-overlap.ts';
import type { KnownAnswer, Rendered } from '../../common/protocol/vocabulary.ts';
import type { Vocabulary } from '../endpoints/vocabulary.ts';
import type { AttemptRow } from '../store/repositories/episodes.ts';
import type { CompletionRow, ThreadRow } from '../store/repositories/threads.ts';
import type { Store } from '../store/store.ts';
import { type ThreadSegment, threadSegments } from './thread-segments.ts';

export interface EpisodeRender {
  readonly store: Store;
  readonly vocabulary: Vocabulary;
  /** the attempt that settled the episode: of any other, nothing is trained */
  readonly attempt: AttemptRow;
  readonly barePrompt: string;
  readonly served: { readonly modelSha256: string; readonly adapterSha256: string | null };
  readonly limits: WindowLimits;
  /** told the texts of every trained answer */
  readonly onTrained: (texts: readonly string[]) => void;
}

export interface EpisodeWindow {
  readonly role: WindowRole;
  readonly threadId: string;
  readonly window: WindowDraft;
}

/** Answers sent to the vocabulary process at once. */
const LEARN_BATCH = 32;

/**
 * All windows of an episode, thread by thread. Every recorded completion of the settled attempt is trained once, as it was
 * sampled. That includes answers cut by the length limit (only the ids that were sampled carry loss, and the turn's end,
 * which the template supplied, does not) and the conversations of workers that were halted: they are part of what led to a
 * result that was ranked. Completions of attempts that were cancelled, interrupted or retried are never read.
 *
 * Nothing is trusted: sampled ids must spell their message, and the whole conversation, rendered anew by the served model's
 * template and tokenizer, must give the recorded ids, also behind the bare prompt.
 *
 * Errors: `invalid_input` naming episode and thread, details.reason "header_too_long", "block_too_long", "prompt_match",
 * "no_windows", "other_model", "other_text", "other_rendering" or "no_turns".
 */
export async function* renderEpisode(input: EpisodeRender): AsyncGenerator<EpisodeWindow> {
  const { store, vocabulary, attempt } = input;
  const owner = attempt.attemptId;
  const threads = store.threads.ofOwner('attempt', owner);
  const orchestrators = threads.filter((thread) => thread.role === 'orchestrator').length;
  if (orchestrators !== 1)
    throw refused(input, null, 'prompt_match', `has ${orchestrators} orchestrators and must have one`);
  try {
    const known = await learnAnswers(input);
    const trained = new Set<string>();
    let windows = 0;
    for (const thread of threads) {
      let closed = 0;
      for (const segment of threadSegments(store, thread.threadId)) {
        const built = await segmentOf(input, { thread, segment, known, first: closed === 0 });
        closed++;
        const where = nameOf(input, thread);
        for (const window of buildWindows({ segment: built, limits: input.limits, trained, where })) {
          windows++;
          yield { role: roleOf(thread), threadId: thread.threadId, window };
        }
      }
    }
    if (windows === 0) throw refused(input, null, 'no_windows', 'has no answer that could be trained');
  } finally {
    await vocabulary.forget(owner).catch(() => undefined); // its process may be what ended this
  }
}

const roleOf = ({ role }: ThreadRow): WindowRole =>
  role === 'orchestrator' ? 'orchestrator' : role === 'worker' ? 'subagent' : 'auxiliary';

const nameOf = ({ attempt }: EpisodeRender, thread: ThreadRow | null): string =>
  thread === null ? `Episode ${attempt.episodeId}` : `thread ${thread.threadId} of episode ${attempt.episodeId}`;

function refused(input: EpisodeRender, thread: ThreadRow | null, reason: string, what: string): MassError {
  const name = nameOf(input, thread);
  return new MassError(
    'invalid_input',
    `${name[0]?.toUpperCase()}${name.slice(1)} ${what}; its windows cannot be rendered.`,
    { details: { reason, episodeId: input.attempt.episodeId, ...(thread ? { threadId: thread.threadId } : {}) } },
  );
}

/** Tells the vocabulary every answer of the attempt in order; the number of each, by completion. */
async function learnAnswers(input: EpisodeRender): Promise<ReadonlyMap<string, number>> {
  const { store, attempt } = input;
  const rows = store.threads.completionsOfOwner('attempt', attempt.attemptId);
  const known = new Map<string, number>();
  for (let from = 0; from < rows.length; ) {
    const toolsHash = rows[from]?.toolsHash ?? null;
    const until = rows.findIndex((row, i) => i > from && (row.toolsHash !== toolsHash || i >= from + LEARN_BATCH));
    const batch = rows.slice(from, until < 0 ? rows.length : until);
    for (const row of batch) {
      requireServed(input, row);
      known.set(row.completionId, known.size);
    }
    await learnBatch(input, batch);
    from += batch.length;
  }
  return known;
}

async function learnBatch(input: EpisodeRender, batch: readonly CompletionRow[]): Promise<void> {
  const { store, vocabulary, attempt, onTrained } = input;
  const answers = batch.map((row) => answerOf(store, row));
  for (const { message } of answers) onTrained(spokenTexts(message));
  const tools = toolsOf(store, batch[0]);
  const [wrong] = await vocabulary.learn({ owner: attempt.attemptId, tools, answers });
  const row = wrong === undefined ? undefined : batch[wrong];
  if (row === undefined) return;
  const what = `has an answer (completion ${row.completionId}) whose recorded tokens spell another text than its message`;
  throw refused(input, store.threads.byId(row.threadId) ?? null, 'other_text', what);
}

function answerOf(store: Store, row: CompletionRow): KnownAnswer {
  const { thinking, stop } = Sampling.parse(JSON.parse(row.samplingJson));
  return {
    message: store.artifacts.json(row.answerHash) as AssistantMessage,
    sampledIds: Uint32Array.from(store.artifacts.ids(row.sampledHash)),
    thinking,
    truncated: row.finishReason === 'length',
    stopTexts: stop ?? [],
  };
}

const toolsOf = (store: Store, row: CompletionRow | undefined): ToolDefinition[] =>
  row === undefined || row.toolsHash === null ? [] : (store.artifacts.json(row.toolsHash) as ToolDefinition[]);

/** What an answer says, free of JSON's escapes. */
export function spokenTexts({ content, reasoning, toolCalls }: AssistantMessage): string[] {
  const calls = (toolCalls ?? []).flatMap((call) => {
    try {
      return stringsOf(JSON.parse(call.arguments));
    } catch {
      return [call.arguments]; // arguments that are no JSON were said as they stand
    }
  });
  return [content, reasoning ?? '', ...calls];
}

function requireServed(input: EpisodeRender, row: CompletionRow): void {
  const { served, store } = input;
  if (row.modelSha256 === served.modelSha256 && row.adapterSha256 === served.adapterSha256) return;
  const what = `has a completion (${row.completionId}) of another model than this cycle's generation`;
  throw refused(input, store.threads.byId(row.threadId) ?? null, 'other_model', what);
}

interface SegmentInput {
  readonly thread: ThreadRow;
  readonly segment: ThreadSegment;
  readonly known: ReadonlyMap<string, number>;
  /** of its thread */
  readonly first: boolean;
}

async function segmentOf(input: EpisodeRender, { thread, segment, known, first }: SegmentInput): Promise<Segment> {
  const recorded = await renderTip(input, { thread, segment, known }, segment.messages);
  const prompt = segment.ids.subarray(0, segment.promptTokens);
  requireEqual(input, thread, { rendered: recorded.ids, recorded: prompt, behind: 'its own prompt' });
  const firstUser = segment.messages.findIndex((message) => message.role === 'user');
  const headerEnd = headerEndOf(input, thread, { rendered: recorded, firstUser });
  const header =
    thread.role === 'orchestrator'
      ? await bareHeader(input, { thread, segment, known }, { firstUser, headerEnd })
      : segment.ids.subarray(0, headerEnd);
  const units = cutUnits({
    ids: segment.ids,
    headerEnd,
    starts: recorded.starts.slice(firstUser + 1).filter((at) => at !== null),
    sampled: segment.sampled.filter((range) => range.start >= headerEnd),
  });
  const query = segment.query === firstUser ? null : queryUnit(units, recorded, segment.query);
  return { header, units, query, fresh: freshUnit({ units, query, segment, first }) };
}

interface Tip {
  readonly thread: ThreadRow;
  readonly segment: ThreadSegment;
  readonly known: ReadonlyMap<string, number>;
}

function renderTip(
  { store, vocabulary, attempt }: EpisodeRender,
  { segment, known }: Tip,
  messages: ThreadSegment['messages'],
): Promise<Rendered> {
  const tip = segment.completions.at(-1);
  return vocabulary.render({
    owner: attempt.attemptId,
    answers: known.get(tip?.completionId ?? '') ?? 0,
    messages: [...messages],
    tools: toolsOf(store, tip),
    thinking: Sampling.parse(JSON.parse(tip?.samplingJson ?? '{}')).thinking,
    now: attempt.startedAt,
  });
}

/** The header with the bare prompt in place of the teacher prompt, rendered; behind it everything must be as recorded. */
async function bareHeader(
  input: EpisodeRender,
  tip: Tip,
  { firstUser, headerEnd }: { firstUser: number; headerEnd: number },
): Promise<Uint32Array> {
  const { thread, segment } = tip;
  const messages = replaceTeacherPrompt({
    messages: segment.messages,
    teacherPrompt: input.store.artifacts.text(input.attempt.promptHash),
    barePrompt: input.barePrompt,
    where: nameOf(input, thread),
  });
  const bare = await renderTip(input, tip, messages);
  const bareEnd = headerEndOf(input, thread, { rendered: bare, firstUser });
  requireEqual(input, thread, {
    rendered: bare.ids.subarray(bareEnd),
    recorded: segment.ids.subarray(headerEnd, segment.promptTokens),
    behind: 'the bare prompt',
  });
  return bare.ids.subarray(0, bareEnd);
}

function headerEndOf(
  input: EpisodeRender,
  thread: ThreadRow,
  { rendered, firstUser }: { rendered: Rendered; firstUser: number },
): number {
  const end = firstUser < 0 ? null : (rendered.starts[firstUser + 1] ?? null);
  if (end === null)
    throw refused(
      input,
      thread,
      'no_turns',
      'cannot be cut into turns: the chat template does not mark where they end',
    );
  return end;
}

function requireEqual(
  input: EpisodeRender,
  thread: ThreadRow,
  { rendered, recorded, behind }: { rendered: Uint32Array; recorded: Uint32Array; behind: string },
): void {
  const same = commonPrefix(rendered, recorded);
  if (same === rendered.length && same === recorded.length) return;
  const what = `reads differently when rendered anew behind ${behind}: the recorded ${recorded.length} tokens and the rendered ${rendered.length} part at token ${same}`;
  throw refused(input, thread, 'other_rendering', what);
}

/** The unit that holds a message: one without a beginning of its own lies in the turn before it. */
function queryUnit(units: readonly CutUnit[], { starts }: Rendered, message: number): number {
  const at = starts.slice(0, message + 1).findLast((start) => start !== null) ?? 0;
  return Math.max(
    0,
    units.findLastIndex((unit) => unit.start <= at),
  );
}

interface FreshInput {
  readonly units: readonly CutUnit[];
  readonly query: number | null;
  readonly segment: ThreadSegment;
  readonly first: boolean;
}

/** A new user message begins what is new; without one it is what no earlier segment of the thread has. */
function freshUnit({ units, query, segment, first }: FreshInput): number {
  if (first) return query ?? 0;
  if (segment.newQuery && query !== null) return query;
  const departs = units.findIndex((unit) => unit.end > segment.shared);
  return departs < 0 ? units.length : departs;
}
