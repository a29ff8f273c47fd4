import { cancelled } from '../../../common/base/errors.ts';
import type { AssistantMessage, ToolDefinition } from '../../../common/domain/chat.ts';
import type { Completion } from '../../endpoints/endpoint.ts';
import type { HaltReason } from '../agent-runtime.ts';
import type { Episode } from './episode.ts';
import { contextOverflow, counting, portFailure } from './failures.ts';
import { type History, smallestAnswer } from './history.ts';

export interface Answer {
  readonly halted: null;
  readonly message: AssistantMessage;
  /** The length limit ended it. */
  readonly truncated: boolean;
}
export interface NoAnswer {
  readonly halted: HaltReason;
}

/** Asks the model for one answer at a time, within every budget of thread and episode. */
export interface Turns {
  /** `note`: said to the model before it answers. Rejects for infrastructure trouble and cancellation. */
  next(options: { readonly note: string | null; readonly tools: 'auto' | 'none' }): Promise<Answer | NoAnswer>;
}

export interface TurnsOptions {
  readonly episode: Episode;
  readonly history: History;
  readonly threadId: string;
  readonly definitions: readonly ToolDefinition[];
  readonly seedOf: (turn: number) => number;
}

export function createTurns(options: TurnsOptions): Turns {
  const { episode, history } = options;
  let turn = 0;
  return {
    next: async ({ note, tools }) => {
      if (note !== null) await counting(episode, () => history.add({ role: 'user', content: note }));
      const seed = options.seedOf(turn++);
      // A second try only after the endpoint told the exact size of a prompt that was estimated too small.
      for (let corrected = false; ; corrected = true) {
        const budget = answerBudget(episode, history);
        if (typeof budget === 'string') return { halted: budget };
        const answer = await ask(options, { seed, maxTokens: budget, tools });
        if (answer !== 'overflow') return answer;
        if (corrected) return { halted: 'context_exhausted' };
      }
    },
  };
}

/** Output tokens the next answer may have, or why there can be none. */
function answerBudget(episode: Episode, history: History): number | HaltReason {
  const stopped = episode.stopped();
  if (stopped) return stopped;
  const { endpoint, executor } = episode.request;
  const smallest = smallestAnswer(endpoint.contextTokens, executor.turnTokens);
  if (history.room() < smallest) return 'context_exhausted';
  return Math.min(executor.turnTokens, history.room(), episode.tokensLeft());
}

async function ask(
  { episode, history, threadId, definitions }: TurnsOptions,
  turn: { readonly seed: number; readonly maxTokens: number; readonly tools: 'auto' | 'none' },
): Promise<Answer | NoAnswer | 'overflow'> {
  const { endpoint, sampling } = episode.request;
  let completion: Completion;
  try {
    completion = await endpoint.complete({
      messages: [...history.messages],
      tools: definitions,
      toolChoice: turn.tools,
      sampling: { ...sampling, seed: turn.seed, maxTokens: turn.maxTokens },
      thread: threadId,
      // The system prompt and the tools are the same in every thread of this kind: a place to branch.
      signal: episode.signal,
    });
  } catch (error) {
    return afterFailure(episode, history, error);
  }
  if (episode.request.signal.aborted) throw cancelled('The episode was cancelled.');
  episode.countTurn(completion.usage);
  history.answered(completion.message, completion.usage);
  return { halted: null, message: completion.message, truncated: completion.finishReason === 'length' };
}

function afterFailure(episode: Episode, history: History, error: unknown): NoAnswer | 'overflow' {
  if (episode.stopped() === 'wall_limit') return { halted: 'wall_limit' };
  const overflow = contextOverflow(error);
  if (!overflow) throw portFailure(error, 'model endpoint');
  // Without a number, or with one that was expected, a second try would fail in the same way.
  if (overflow.promptTokens === null || !history.correct(overflow.promptTokens)) return { halted: 'context_exhausted' };
  return 'overflow';
}
