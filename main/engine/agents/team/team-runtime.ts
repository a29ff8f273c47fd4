import { turnSeed } from '../../../common/domain/seeds.ts';
import { loadPrompt, loadPromptSet } from '../../../node/prompts.ts';
import type { Owner } from '../../sandbox/sandbox.ts';
import type { AgentRuntime, EpisodeRequest, EpisodeResult, HaltReason } from '../agent-runtime.ts';
import { delegateTool } from './delegation.ts';
import { createEpisode, type Episode } from './episode.ts';
import { runThread, type ThreadEnd, type ThreadSpec } from './thread.ts';
import { textBounds } from './tool-arguments.ts';
import { plainText } from './tool-output.ts';
import { type WorkspaceFiles, workspaceTools } from './workspace-tools.ts';

export interface TeamRuntimeOptions {
  /** File access of one attempt, confined to its workspace; files it makes belong to `owner` (null: the engine). */
  readonly createFiles: (options: { readonly workspace: string; readonly owner: Owner | null }) => WorkspaceFiles;
}

export interface TeamRuntime extends AgentRuntime {
  /** sha256 of every prompt file the runtime reads to a model, by id: for records. */
  readonly promptHashes: Readonly<Record<string, string>>;
}

/** The folder the model knows as its own; host paths stay out of prompts. */
const WORKSPACE = '/workspace';

const loadPrompts = () => ({
  orchestrator: loadPrompt('orchestrator', 1),
  worker: loadPrompt('worker', 1),
  assignment: loadPrompt('assignment', 1),
  wrapUp: loadPrompt('wrap-up', 1),
  tools: loadPromptSet('team-tools', 1),
  notes: loadPromptSet('team-notes', 1),
});
type Prompts = ReturnType<typeof loadPrompts>;

/**
 * The built-in executor: an orchestrator that works with files and commands and may delegate to workers in the
 * foreground. It speaks to the endpoint and the sandbox of a request and keeps no state between episodes.
 * @throws MassError prerequisite when a prompt file cannot be read
 */
export function createTeamRuntime(options: TeamRuntimeOptions): TeamRuntime {
  const prompts = loadPrompts();
  return {
    id: 'team',
    promptHashes: Object.fromEntries(Object.values(prompts).map(({ id, hash }) => [id, hash])),
    runEpisode: async (request) => {
      const episode = createEpisode(request);
      try {
        episode.stopped();
        const end = await runThread(episode, orchestratorThread(episode, prompts, options));
        return resultOf(episode, end);
      } finally {
        episode.dispose();
      }
    },
  };
}

function orchestratorThread(episode: Episode, prompts: Prompts, options: TeamRuntimeOptions): ThreadSpec {
  const { request } = episode;
  const { executor } = request;
  const shared = workspaceTools({
    request,
    files: options.createFiles({ workspace: request.workspace, owner: request.sandbox.owner }),
    bounds: textBounds(executor.turnTokens),
    descriptions: prompts.tools,
    notes: prompts.notes,
    secondsLeft: episode.secondsLeft,
  });
  const common = (ordinal: string) => ({
    ordinal,
    wrapUpPrompt: prompts.wrapUp.fill(),
    notes: prompts.notes,
    hide: { path: request.workspace, as: WORKSPACE },
    seedOf: seedsOf(request, ordinal),
  });
  const environment = request.environment.description;
  const { commandSeconds } = executor;
  const delegate = delegateTool({
    episode,
    bounds: textBounds(executor.turnTokens),
    description: prompts.tools.fill('delegate'),
    notes: prompts.notes,
    worker: ({ role, assignment, callId, parentOrdinal }) => ({
      ...common(episode.nextThread()),
      start: {
        role: 'worker',
        name: threadName(role),
        parentThreadId: `${request.attemptId}:${parentOrdinal}`,
        parentCallId: callId,
        assignment,
      },
      systemPrompt: prompts.worker.fill({ environment, commandSeconds, turns: executor.workerTurns }),
      firstMessage: prompts.assignment.fill({ role, assignment }),
      tools: shared,
      maxTurns: executor.workerTurns,
      // A worker's report is what the orchestrator waited for: it is always asked for.
      onTurnLimit: 'wrap-up',
    }),
  });
  const ordinal = episode.nextThread();
  return {
    ...common(ordinal),
    start: { role: 'orchestrator', name: 'orchestrator', parentThreadId: null, parentCallId: null, assignment: null },
    systemPrompt: prompts.orchestrator.fill({
      environment,
      commandSeconds,
      turns: executor.orchestratorTurns,
      delegations: executor.maxDelegations,
    }),
    firstMessage: request.prompt,
    tools: [delegate(ordinal), ...shared],
    maxTurns: executor.orchestratorTurns,
    onTurnLimit: executor.onTurnLimit,
  };
}

/** A role is model text of any length: one short line of it names the thread. */
const threadName = (role: string): string => [...plainText(role).replace(/\s+/g, ' ').trim()].slice(0, 80).join('');

const seedsOf = (request: EpisodeRequest, thread: string) => (turn: number) =>
  turnSeed({ episodeSeed: request.seed, thread, turn, policy: request.seedPolicy });

const HALTS: Readonly<Record<HaltReason, string>> = {
  loop: 'The orchestrator repeated itself without any change and was halted.',
  turn_limit: 'The orchestrator used all its turns without a final report.',
  token_limit: 'The episode spent all the tokens it may generate.',
  wall_limit: 'The episode ran out of time.',
  context_exhausted: "The orchestrator's conversation filled the context.",
  output_truncated: "The orchestrator's answers were cut off by the length limit twice in a row.",
  invalid_output: "The orchestrator's answers held nothing that could be used.",
};

function resultOf(episode: Episode, end: ThreadEnd): EpisodeResult {
  const totals = episode.totals();
  if (end.outcome === 'halted')
    return { ...totals, outcome: 'halted', haltReason: end.reason, ending: HALTS[end.reason], finalReport: end.words };
  const ending =
    end.outcome === 'completed'
      ? 'The orchestrator gave its final report.'
      : 'The orchestrator used all its turns and gave its final report when asked for it.';
  return { ...totals, outcome: 'completed', haltReason: null, ending, finalReport: end.words };
}
