import type { z } from 'zod';
import type { ExecutorConfig, SamplingConfig } from '../../common/domain/config.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { Sandbox, SandboxLimits } from '../sandbox/sandbox.ts';

/** What an executor needs to run one attempt of an episode. It knows no store: what happens goes to the observer. */
export interface EpisodeRequest {
  readonly attemptId: string;
  /** The orchestrator's first user message: bare prompt, or teacher prompt. */
  readonly prompt: string;
  readonly workspace: string;
  readonly endpoint: Endpoint;
  readonly sandbox: Sandbox;
  readonly sandboxLimits: SandboxLimits;
  readonly executor: z.infer<typeof ExecutorConfig>;
  readonly sampling: z.infer<typeof SamplingConfig>;
  /** The episode's seed and how request seeds come from it (`turnSeed` in common/domain/seeds.ts). */
  readonly seed: number;
  readonly seedPolicy: 'turn' | 'episode';
  /** What commands find: mounted read-only, described to the model in one line. */
  readonly environment: {
    readonly mounts: Readonly<Record<string, string>>;
    readonly env: Readonly<Record<string, string>>;
    readonly description: string;
  };
  readonly observer: EpisodeObserver;
  /** Aborting ends the attempt at once; `runEpisode` then rejects with `cancelled`. */
  readonly signal: AbortSignal;
}

export type HaltReason =
  | 'loop'
  | 'turn_limit'
  | 'token_limit'
  | 'wall_limit'
  | 'context_exhausted'
  | 'output_truncated'
  | 'invalid_output';

/** A model failure is `halted` and is kept as evidence; infrastructure trouble rejects instead and is never a result. */
export interface EpisodeResult {
  readonly outcome: 'completed' | 'halted';
  readonly haltReason: HaltReason | null;
  /** One sentence for people: how the episode ended. */
  readonly ending: string;
  readonly finalReport: string;
  readonly turns: number;
  readonly delegations: number;
  readonly toolCalls: number;
  readonly generatedTokens: number;
  readonly promptTokens: number;
  /** Newest tool calls of any thread, oldest first, bounded: evidence for the proposer. */
  readonly lastToolCalls: readonly {
    readonly thread: string;
    readonly name: string;
    readonly arguments: string;
    readonly result: string;
  }[];
}

export interface ThreadStart {
  readonly threadId: string;
  readonly role: 'orchestrator' | 'worker' | 'evaluator' | 'proposer';
  readonly name: string;
  readonly parentThreadId: string | null;
  readonly parentCallId: string | null;
  /** Worker: what it was told. */
  readonly assignment: string | null;
}

export interface ToolRun {
  readonly threadId: string;
  readonly callId: string;
  readonly name: string;
  readonly arguments: string;
  /** The whole result; what the model saw of it is `shown`. */
  readonly result: string;
  readonly shown: string;
  readonly exitCode: number | null;
  readonly durationMs: number;
  readonly failed: boolean;
}

/** Each call is awaited and durable when it resolves. */
export interface EpisodeObserver {
  threadStarted(thread: ThreadStart): Promise<void>;
  threadEnded(threadId: string, outcome: string): Promise<void>;
  toolRan(run: ToolRun): Promise<void>;
}

export interface AgentRuntime {
  readonly id: string;
  runEpisode(request: EpisodeRequest): Promise<EpisodeResult>;
}
