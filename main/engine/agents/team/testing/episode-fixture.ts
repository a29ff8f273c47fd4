import { cancelled } from '../../../../common/base/errors.ts';
import type { AssistantMessage, FinishReason, ToolCall } from '../../../../common/domain/chat.ts';
import { ExecutorConfig } from '../../../../common/domain/config.ts';
import type { Completion, CompletionRequest, Endpoint } from '../../../endpoints/endpoint.ts';
import type { CommandRequest, CommandResult, Sandbox } from '../../../sandbox/sandbox.ts';
import type { EpisodeRequest, EpisodeResult, ThreadStart, ToolRun } from '../../agent-runtime.ts';
import { fourCharacters, promptTokensOf } from '../../testing/fake-endpoint.ts';
import { createFileTools } from '../../tools/files.ts';
import { createTeamRuntime } from '../team-runtime.ts';
import type { WorkspaceFiles } from '../workspace-tools.ts';

export const ATTEMPT = 'attempt-1';
export const HOST_WORKSPACE = '/host/secret-folder/attempt-1';

export type Said = AssistantMessage & { readonly finish?: FinishReason; readonly tokens?: number };
/** `turn` counts the requests of the request's thread from 0. */
export type Script = (request: CompletionRequest, turn: number) => Said | Promise<Said>;

let calls = 0;
export const call = (name: string, argumentsOf: unknown): ToolCall => ({
  id: `call-${calls++}`,
  name,
  arguments: typeof argumentsOf === 'string' ? argumentsOf : JSON.stringify(argumentsOf),
});
export const say = (content: string, more: Partial<Said> = {}): Said => ({ role: 'assistant', content, ...more });
export const use = (...toolCalls: ToolCall[]): Said => ({ role: 'assistant', content: '', toolCalls });

export const ended = (stdout: string, more: Partial<CommandResult> = {}): CommandResult => ({
  exitCode: 0,
  signal: null,
  limit: null,
  stdout,
  stderr: '',
  stdoutBytes: Buffer.byteLength(stdout),
  stderrBytes: 0,
  durationMs: 1,
  cancelled: false,
  ...more,
});

/** Files of a workspace that exists only in memory. */
export function memoryFiles(): WorkspaceFiles & { readonly contents: Map<string, string> } {
  const contents = new Map<string, string>();
  return {
    contents,
    list: async () => [...contents.keys()].join('\n'),
    read: async (path) => contents.get(path) ?? '',
    write: async (path, content) => {
      contents.set(path, content);
    },
    edit: async (path, { find, replace }) => {
      contents.set(
        path,
        (contents.get(path) ?? '').replace(find, () => replace),
      );
    },
  };
}

export interface Stage {
  /** Names every port in the order it was entered and, with "done", left: the durable order of an episode. */
  readonly log: string[];
  readonly requests: CompletionRequest[];
  readonly commands: CommandRequest[];
  readonly threads: ThreadStart[];
  readonly endings: [string, string][];
  readonly toolRuns: ToolRun[];
  /** Ports that were entered and have not settled. */
  readonly pending: Set<string>;
}

export interface PlayOptions {
  readonly script: Script;
  readonly executor?: Partial<EpisodeRequest['executor']>;
  readonly contextTokens?: number;
  readonly seedPolicy?: EpisodeRequest['seedPolicy'];
  readonly command?: (request: CommandRequest) => CommandResult | Promise<CommandResult>;
  readonly countTokens?: (text: string) => number;
  readonly signal?: AbortSignal;
  /** Runs before a port answers; `entry` counts all ports of the episode from 0. */
  readonly onPort?: (name: string, entry: number) => void | Promise<void>;
  readonly files?: WorkspaceFiles;
  readonly sandbox?: Sandbox;
  readonly workspace?: string;
}

export interface Play {
  readonly stage: Stage;
  readonly result: Promise<EpisodeResult>;
}

/** One episode of the real runtime against a scripted model, in-memory files and a scripted sandbox. */
export function play(options: PlayOptions): Play {
  const stage: Stage = {
    log: [],
    requests: [],
    commands: [],
    threads: [],
    endings: [],
    toolRuns: [],
    pending: new Set(),
  };
  let entries = 0;
  async function port<T>(name: string, signal: AbortSignal | undefined, work: () => T | Promise<T>): Promise<T> {
    const entry = entries++;
    stage.log.push(name);
    stage.pending.add(`${entry} ${name}`);
    try {
      await options.onPort?.(name, entry);
      if (signal?.aborted) throw cancelled();
      return await work();
    } finally {
      stage.pending.delete(`${entry} ${name}`);
      stage.log.push(`${name} done`);
    }
  }

  const runtime = createTeamRuntime({
    createFiles: options.workspace ? createFileTools : () => options.files ?? memoryFiles(),
  });
  const result = runtime.runEpisode({
    attemptId: ATTEMPT,
    prompt: 'Measure the fall of an apple.',
    workspace: options.workspace ?? HOST_WORKSPACE,
    endpoint: scriptedEndpoint(options, stage, port),
    sandbox: options.sandbox ?? scriptedSandbox(options, stage, port),
    sandboxLimits: { memoryMiB: 512, processes: 32, fileMiB: 16, diskMiB: 64, cpuSeconds: 20 },
    executor: ExecutorConfig.parse({ turnTokens: 1024, ...options.executor }),
    sampling: { temperature: 0.6, topP: 0.95, topK: 20, thinking: false },
    seed: 450_001,
    seedPolicy: options.seedPolicy ?? 'turn',
    environment: { mounts: {}, env: {}, description: 'bash and Python 3' },
    observer: {
      threadStarted: (thread) =>
        port(`start ${thread.threadId.split(':')[1]}`, undefined, () => {
          stage.threads.push(thread);
        }),
      threadEnded: (threadId, outcome) =>
        port(`end ${threadId.split(':')[1]}`, undefined, () => {
          stage.endings.push([threadId.split(':')[1] ?? '', outcome]);
        }),
      toolRan: (run) =>
        port(`ran ${run.name}`, undefined, () => {
          stage.toolRuns.push(run);
        }),
    },
    signal: options.signal ?? new AbortController().signal,
  });
  return { stage, result };
}

type Port = <T>(name: string, signal: AbortSignal | undefined, work: () => T | Promise<T>) => Promise<T>;

function scriptedEndpoint(options: PlayOptions, stage: Stage, port: Port): Endpoint {
  const turns = new Map<string, number>();
  return {
    contextTokens: options.contextTokens ?? 32_768,
    countTokens: (text) => port('count', undefined, () => (options.countTokens ?? fourCharacters)(text)),
    complete: (request) =>
      port(`ask ${request.thread.split(':')[1]}`, request.signal, async (): Promise<Completion> => {
        const turn = turns.get(request.thread) ?? 0;
        turns.set(request.thread, turn + 1);
        stage.requests.push(request);
        const { finish, tokens, ...message } = await options.script(request, turn);
        const promptTokens = promptTokensOf(request) + fourCharacters(JSON.stringify(request.tools));
        const completionTokens = tokens ?? fourCharacters(JSON.stringify(message));
        return {
          completionId: `completion-${stage.requests.length}`,
          message,
          finishReason: finish ?? (message.toolCalls ? 'tool_calls' : 'stop'),
          usage: { promptTokens, cachedTokens: 0, evaluatedTokens: promptTokens, completionTokens },
        };
      }),
  };
}

function scriptedSandbox(options: PlayOptions, stage: Stage, port: Port): Sandbox {
  return {
    mode: 'bubblewrap',
    owner: null,
    run: (request) =>
      port('command', request.signal, () => {
        stage.commands.push(request);
        return options.command?.(request) ?? ended('');
      }),
    createWorkspace: async () => undefined,
  };
}

/** Host of a promise that settles only when the signal aborts, as a port that obeys it does. */
export const untilAbort = (signal: AbortSignal | undefined): Promise<never> =>
  new Promise((_resolve, reject) => {
    const stop = () => reject(cancelled());
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
  });
