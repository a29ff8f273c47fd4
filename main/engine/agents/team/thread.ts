import type { ToolCall } from '../../../common/domain/chat.ts';
import type { PromptSet } from '../../../node/prompts.ts';
import type { HaltReason, ThreadStart } from '../agent-runtime.ts';
import type { Episode } from './episode.ts';
import { counting, portFailure } from './failures.ts';
import { createHistory, type History } from './history.ts';
import { createLoopDetector, type LoopDetector } from './loop-detector.ts';
import { runCall, type Tool, type ToolOutcome } from './tool.ts';
import { fitTokens } from './tool-output.ts';
import { type Answer, createTurns, type Turns } from './turns.ts';

export interface ThreadSpec {
  /** Ordinal name: t0 is the orchestrator. */
  readonly ordinal: string;
  readonly start: Omit<ThreadStart, 'threadId'>;
  readonly systemPrompt: string;
  readonly firstMessage: string;
  readonly tools: readonly Tool[];
  readonly maxTurns: number;
  readonly onTurnLimit: 'halt' | 'wrap-up';
  readonly wrapUpPrompt: string;
  readonly notes: PromptSet;
  /** Host path that must not reach a prompt, and what stands for it. */
  readonly hide: { readonly path: string; readonly as: string };
  readonly seedOf: (turn: number) => number;
}

/** How a thread ended. `words`: its report, or the last words of a halted thread. */
export type ThreadEnd =
  | { readonly outcome: 'completed' | 'wrapped_up'; readonly words: string }
  | { readonly outcome: 'halted'; readonly reason: HaltReason; readonly words: string };

/** Answers in a row that came to nothing before a thread is given up. */
const CUT_ANSWERS = 2;
const EMPTY_ANSWERS = 2;
const UNUSABLE_ANSWERS = 6;
/** The results of one turn may fill a quarter of the context, a single one an eighth; 16k tokens at most. */
const TURN_SHARE = 4;
const RESULT_SHARE = 8;
const LARGEST_RESULT_TOKENS = 16_384;
const SMALLEST_RESULT_TOKENS = 48;

interface Thread {
  readonly episode: Episode;
  readonly spec: ThreadSpec;
  readonly id: string;
  readonly history: History;
  readonly turns: Turns;
  readonly loops: LoopDetector;
  /** In a row, since the last useful turn. */
  readonly wasted: { cut: number; empty: number; unusable: number };
  lastWords: string;
}

/**
 * Runs one conversation until it reports or is halted. Calls of a turn run one after another in their order: threads
 * share a workspace, and a fixed order makes an episode a function of its seeds.
 * Rejects for infrastructure trouble and cancellation; the thread is then not reported as ended (its attempt is not).
 */
export async function runThread(episode: Episode, spec: ThreadSpec): Promise<ThreadEnd> {
  const { observer, attemptId } = episode.request;
  const id = `${attemptId}:${spec.ordinal}`;
  await observer.threadStarted({ ...spec.start, threadId: id });
  const end = await converse(await openThread(episode, spec, id));
  await observer.threadEnded(id, end.outcome === 'halted' ? end.reason : end.outcome);
  return end;
}

const halted = (reason: HaltReason, words: string): ThreadEnd => ({ outcome: 'halted', reason, words });

async function openThread(episode: Episode, spec: ThreadSpec, id: string): Promise<Thread> {
  const { endpoint, executor } = episode.request;
  const definitions = spec.tools.map(({ definition }) => definition);
  const history = await counting(episode, async () => {
    const empty = await createHistory(endpoint, { tools: definitions, contextSafety: executor.contextSafety });
    await empty.add({ role: 'system', content: spec.systemPrompt });
    await empty.add({ role: 'user', content: spec.firstMessage });
    return empty;
  });
  return {
    episode,
    spec,
    id,
    history,
    turns: createTurns({ episode, history, threadId: id, definitions, seedOf: spec.seedOf }),
    loops: createLoopDetector(),
    wasted: { cut: 0, empty: 0, unusable: 0 },
    lastWords: '',
  };
}

async function converse(thread: Thread): Promise<ThreadEnd> {
  const { spec, turns } = thread;
  let reminder: string | null = null;
  for (let turn = 0; turn < spec.maxTurns; turn++) {
    const answer = await turns.next({ note: reminder, tools: 'auto' });
    reminder = null;
    if (answer.halted !== null) return halted(answer.halted, thread.lastWords);
    const step = await takeStep(thread, answer);
    if (step.end) return step.end;
    reminder = step.reminder;
  }
  return spec.onTurnLimit === 'halt' ? halted('turn_limit', thread.lastWords) : wrapUp(thread);
}

/** What one answer leads to: the end of the thread, or another turn, perhaps after a reminder. */
interface Step {
  readonly end: ThreadEnd | null;
  readonly reminder: string | null;
}
const goOn: Step = { end: null, reminder: null };
const endWith = (end: ThreadEnd): Step => ({ end, reminder: null });

async function takeStep(thread: Thread, answer: Answer): Promise<Step> {
  const { message, truncated } = answer;
  const { wasted } = thread;
  if (message.content.trim() !== '') thread.lastWords = message.content;
  if (thread.loops.answered(message)) return endWith(halted('loop', thread.lastWords));
  const calls = message.toolCalls ?? [];
  if (calls.length > 0) return afterCalls(thread, calls);
  if (truncated) {
    wasted.cut += 1;
    if (wasted.cut >= CUT_ANSWERS) return endWith(halted('output_truncated', thread.lastWords));
    return { end: null, reminder: thread.spec.notes.fill('answer-cut') };
  }
  if (message.content.trim() !== '') return endWith({ outcome: 'completed', words: message.content });
  wasted.empty += 1;
  if (wasted.empty >= EMPTY_ANSWERS) return endWith(halted('invalid_output', thread.lastWords));
  return { end: null, reminder: thread.spec.notes.fill('answer-empty') };
}

async function afterCalls(thread: Thread, calls: readonly ToolCall[]): Promise<Step> {
  const { wasted } = thread;
  wasted.cut = 0;
  wasted.empty = 0;
  let usable = false;
  for (const call of calls) {
    const ran = await runOne(thread, call, calls.length);
    if (ran.halted !== null) return endWith(halted(ran.halted, thread.lastWords));
    if (!ran.unusable) usable = true;
  }
  wasted.unusable = usable ? 0 : wasted.unusable + 1;
  return wasted.unusable >= UNUSABLE_ANSWERS ? endWith(halted('invalid_output', thread.lastWords)) : goOn;
}

interface RanCall {
  readonly halted: HaltReason | null;
  readonly unusable: boolean;
}

/** Runs a call, shows the model its bounded result and records both; what was recorded is durable when it returns. */
async function runOne(thread: Thread, call: ToolCall, callsOfTurn: number): Promise<RanCall> {
  const { episode, spec, history, loops } = thread;
  // A spent token budget still lets calls of the turn that spent it run: they were paid for.
  if (episode.stopped() === 'wall_limit') return { halted: 'wall_limit', unusable: false };
  const startedAt = performance.now();
  const outcome = await perform(thread, call);
  if (outcome === null) return { halted: 'wall_limit', unusable: false };
  const durationMs = performance.now() - startedAt;
  const { shown, tokens } = await counting(episode, () => show(thread, outcome.result, callsOfTurn));
  const { result, exitCode, failed } = outcome;
  await episode.request.observer.toolRan({
    threadId: thread.id,
    callId: call.id,
    name: call.name,
    arguments: call.arguments,
    result,
    shown,
    exitCode,
    durationMs,
    failed,
  });
  episode.remember(spec.start.name, call, shown);
  await history.add({ role: 'tool', toolCallId: call.id, content: shown }, tokens);
  const stopped = episode.stopped();
  const loop = loops.called(call, result) ? 'loop' : null;
  return { halted: stopped === 'wall_limit' ? stopped : loop, unusable: outcome.unusable };
}

/** `null`: the episode's time ran out and the tool was aborted without a result. */
async function perform(thread: Thread, call: ToolCall): Promise<ToolOutcome | null> {
  const { episode, spec } = thread;
  try {
    const outcome = await runCall(spec.tools, call, { notes: spec.notes, signal: episode.signal });
    // Throws when the attempt was cancelled: an aborted command's output is not a result.
    episode.stopped();
    return outcome;
  } catch (error) {
    if (episode.stopped() === 'wall_limit') return null;
    throw portFailure(error, 'workspace');
  }
}

function show(thread: Thread, result: string, callsOfTurn: number) {
  const { episode, spec, history } = thread;
  const { endpoint } = episode.request;
  const context = endpoint.contextTokens;
  const share = Math.min(
    LARGEST_RESULT_TOKENS,
    Math.floor(context / RESULT_SHARE),
    Math.floor(context / TURN_SHARE / callsOfTurn),
    // Half of what is left: a result alone should not end a thread that could still report.
    Math.floor(history.room() / 2),
  );
  return fitTokens(result.replaceAll(spec.hide.path, spec.hide.as), {
    tokens: Math.max(SMALLEST_RESULT_TOKENS, share),
    countTokens: (text) => endpoint.countTokens(text),
    mark: (bytes) => spec.notes.fill('cut', { bytes }),
  });
}

async function wrapUp(thread: Thread): Promise<ThreadEnd> {
  const answer = await thread.turns.next({ note: thread.spec.wrapUpPrompt, tools: 'none' });
  if (answer.halted !== null) return halted(answer.halted, thread.lastWords);
  const words = answer.message.content;
  if (words.trim() === '') return halted('turn_limit', thread.lastWords);
  return { outcome: 'wrapped_up', words };
}
