import type { PromptSet } from '../../../node/prompts.ts';
import type { Episode } from './episode.ts';
import { runThread, type ThreadEnd, type ThreadSpec } from './thread.ts';
import { defineTool, failed, succeeded, type Tool, type ToolOutcome } from './tool.ts';
import { argumentSchemas, type TextBounds, UNBOUNDED } from './tool-arguments.ts';

export interface Delegation {
  readonly role: string;
  readonly assignment: string;
  readonly callId: string;
  readonly parentOrdinal: string;
}

export interface DelegateToolOptions {
  readonly episode: Episode;
  readonly bounds: TextBounds;
  readonly description: string;
  readonly notes: PromptSet;
  readonly worker: (delegation: Delegation) => ThreadSpec;
}

/** `delegate` for the thread with the given ordinal name: runs a worker to its end and returns its report. */
export function delegateTool(options: DelegateToolOptions): (parentOrdinal: string) => Tool {
  const { episode, notes } = options;
  const limit = episode.request.executor.maxDelegations;
  return (parentOrdinal) =>
    defineTool({
      name: 'delegate',
      description: options.description,
      offered: argumentSchemas(options.bounds).delegate,
      accepted: argumentSchemas(UNBOUNDED).delegate,
      notes,
      run: async ({ role, assignment }, call) => {
        if (episode.delegations >= limit) return failed(notes.fill('no-delegations-left', { limit }));
        episode.countDelegation();
        const end = await runThread(episode, options.worker({ role, assignment, callId: call.id, parentOrdinal }));
        return handBack(end, notes);
      },
    });
}

function handBack(end: ThreadEnd, notes: PromptSet): ToolOutcome {
  if (end.outcome !== 'halted') return succeeded(end.words);
  const reason = notes.fill(`reason-${end.reason}`);
  return failed(notes.fill('worker-stopped', { reason, words: end.words.trim() || notes.fill('worker-silent') }));
}
