import { cancelled } from '../../../common/base/errors.ts';
import type { ToolCall, Usage } from '../../../common/domain/chat.ts';
import type { EpisodeRequest, EpisodeResult, HaltReason } from '../agent-runtime.ts';
import { headAndTail } from './tool-output.ts';

type LastToolCall = EpisodeResult['lastToolCalls'][number];

const KEPT_CALLS = 12;
const KEPT_ARGUMENT_BYTES = 500;
const KEPT_RESULT_BYTES = 800;
/** setTimeout fires at once for a longer delay (2^31 - 1 ms, 24.8 days). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** State all threads of one episode share: clock, budgets, counters. */
export interface Episode {
  readonly request: EpisodeRequest;
  /** Aborts on cancellation and when the episode's time is up. */
  readonly signal: AbortSignal;
  /** Why no further turn may start, if so. @throws MassError cancelled */
  stopped(): HaltReason | null;
  tokensLeft(): number;
  secondsLeft(): number;
  /** Ordinal names of threads in the order they start: t0, t1, ... */
  nextThread(): string;
  countTurn(usage: Usage): void;
  countDelegation(): void;
  readonly delegations: number;
  remember(thread: string, call: ToolCall, shown: string): void;
  totals(): Pick<
    EpisodeResult,
    'turns' | 'delegations' | 'toolCalls' | 'generatedTokens' | 'promptTokens' | 'lastToolCalls'
  >;
  /** Stops the clock. */
  dispose(): void;
}

export function createEpisode(request: EpisodeRequest): Episode {
  const wall = new AbortController();
  const wallMs = request.executor.wallSeconds * 1000;
  const startedAt = performance.now();
  const timer = setTimeout(() => wall.abort(), Math.min(wallMs, LONGEST_TIMER_MS));
  const counters = { turns: 0, delegations: 0, toolCalls: 0, generatedTokens: 0, promptTokens: 0 };
  const lastToolCalls: LastToolCall[] = [];
  let threads = 0;
  const tokensLeft = () => request.executor.episodeTokens - counters.generatedTokens;

  return {
    request,
    signal: AbortSignal.any([request.signal, wall.signal]),
    stopped: () => {
      if (request.signal.aborted) throw cancelled('The episode was cancelled.');
      if (wall.signal.aborted) return 'wall_limit';
      return tokensLeft() <= 0 ? 'token_limit' : null;
    },
    tokensLeft,
    secondsLeft: () => (wallMs - (performance.now() - startedAt)) / 1000,
    nextThread: () => `t${threads++}`,
    countTurn: (usage) => {
      counters.turns += 1;
      counters.generatedTokens += usage.completionTokens;
      counters.promptTokens += usage.promptTokens;
    },
    countDelegation: () => {
      counters.delegations += 1;
    },
    get delegations() {
      return counters.delegations;
    },
    remember: (thread, call, shown) => {
      counters.toolCalls += 1;
      lastToolCalls.push({
        thread,
        name: call.name,
        arguments: headAndTail(call.arguments, KEPT_ARGUMENT_BYTES, () => '[...]'),
        result: headAndTail(shown, KEPT_RESULT_BYTES, () => '[...]'),
      });
      if (lastToolCalls.length > KEPT_CALLS) lastToolCalls.shift();
    },
    totals: () => ({ ...counters, lastToolCalls: [...lastToolCalls] }),
    dispose: () => clearTimeout(timer),
  };
}
