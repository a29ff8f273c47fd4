import type { DomainEvent, EventOf, EventType } from '../../common/domain/events.ts';
import { formatBytes, formatCount } from './format.ts';

/** What earlier events said about ids that later ones only name. */
export interface EventNames {
  /** "stopping-distance v2 run 1" of an episode, or a plain word when its plan was not seen */
  episode(episodeId: string): string;
  /** the task and purpose of a judgment */
  judgment(judgmentId: string): string;
}

type Describe = { readonly [T in EventType]: (event: EventOf<T>, names: EventNames) => string };

const short = (hash: string): string => hash.slice(0, 12);

const describe: Describe = {
  'experiment.created': (e) => `Experiment "${e.name}" created, configuration ${short(e.configHash)}.`,
  'model.registered': (e) => `Model ${e.modelId} registered: ${e.architecture}, ${formatBytes(e.bytes)}.`,
  'generation.registered': (e) => `Generation L${e.number} is model ${e.modelId}.`,
  'task.registered': (e) => `Task ${e.taskId} (${e.split}): ${e.title}`,
  'run.started': (e) => `Run started: ${e.stages.join(', ')}.`,
  'run.ended': (e) => `Run ${e.state}: ${e.message}`,
  'stage.started': (e) => `Stage ${e.stage} started.`,
  'stage.ended': (e) => `Stage ${e.stage} ${e.state}${e.message === '' ? '.' : `: ${e.message}`}`,
  notice: (e) => `${e.level === 'warning' ? 'Warning' : 'Note'}: ${e.message}`,
  'workflow.added': (e) =>
    `${e.taskId}: workflow v${e.version} by ${e.author}${e.status === 'proposal_failed' ? ' failed' : ''}.`,
  'proposal.recorded': (e) =>
    `${e.taskId}: proposal for v${e.version} from v${e.basedOn} ${e.valid ? 'valid' : 'invalid'} after ${e.tries} tries.`,
  'champion.decided': (e) =>
    `${e.taskId}: champion is v${e.version}${e.provenWin ? ', a proven win' : ', without a proven win'}.`,
  'episode.planned': (e, names) => `Episode planned: ${names.episode(e.episodeId)}.`,
  'attempt.started': (e, names) => `${names.episode(e.episodeId)}: attempt ${e.number} started.`,
  'attempt.ended': (e, names) =>
    `${names.episode(e.episodeId)}: ${e.outcome}${e.haltReason === null ? '' : ` (${e.haltReason})`}, ` +
    `${e.turns} turns, ${e.delegations} delegations, ${e.toolCalls} tool calls, ${formatCount(e.generatedTokens)} tokens.`,
  'thread.started': (e) => `Thread of ${e.role} "${e.name}" started.`,
  'thread.ended': (e) => `Thread ended: ${e.outcome}.`,
  'completion.recorded': (e) =>
    `Completion: ${formatCount(e.usage.promptTokens)} prompt tokens, ended by ${e.finishReason}.`,
  'tool.ran': (e) => `Tool ${e.name} ${e.failed ? 'failed' : 'ran'} in ${Math.round(e.durationMs)} ms.`,
  'judgment.opened': (e) => `${e.taskId}: judgment (${e.purpose}) opened.`,
  'presentation.recorded': (e, names) =>
    `${names.judgment(e.judgmentId)}: shown once, verdict ${e.valid ? e.verdict : 'invalid'}.`,
  'judgment.decided': (e, names) =>
    `${names.judgment(e.judgmentId)}: ${e.result === 'tie' ? 'tie' : `${e.result} is better`}` +
    `${e.invalidPresentations > 0 ? `, ${e.invalidPresentations} invalid answers` : ''}.`,
  'match.scheduled': (e) => `${e.taskId}: match ${e.matchIndex} scheduled.`,
  'ratings.computed': (e) => `${e.taskId}: ${e.entries.length} runs rated (${e.method}).`,
  'selection.made': (e) => {
    const counted = (decision: string) => e.entries.filter((entry) => entry.decision === decision).length;
    return (
      `${e.taskId}: ${counted('train')} runs to train, ${counted('validate')} to validate, ${counted('drop')} dropped` +
      `${e.flagged ? '; flagged, the fits disagree' : ''}.`
    );
  },
  'task.excluded': (e) => `${e.taskId}: excluded at ${e.stage}: ${e.reason}`,
  pruned: (e) => `Pruned ${e.attemptIds.length} attempts, ${formatBytes(e.bytes)}.`,
};

/** Too frequent or too small for a person who watches a run; `mass log` shows them with --all. */
const quiet: ReadonlySet<EventType> = new Set<EventType>([
  'model.registered',
  'generation.registered',
  'task.registered',
  'proposal.recorded',
  'episode.planned',
  'thread.started',
  'thread.ended',
  'completion.recorded',
  'tool.ran',
  'judgment.opened',
  'presentation.recorded',
  'match.scheduled',
]);

export interface EventDescriber {
  /** One line for any event. Also learns the names that later events use, so feed it every event. */
  line(event: DomainEvent): string;
  worthTelling(event: DomainEvent): boolean;
}

export function createEventDescriber(): EventDescriber {
  const episodes = new Map<string, string>();
  const judgments = new Map<string, string>();
  const names: EventNames = {
    episode: (id) => episodes.get(id) ?? 'An episode',
    judgment: (id) => judgments.get(id) ?? 'A judgment',
  };
  return {
    line: (event) => {
      if (event.type === 'episode.planned') {
        const version = event.workflowVersion === null ? 'bare prompt' : `v${event.workflowVersion}`;
        episodes.set(event.episodeId, `${event.taskId} ${version} run ${event.replicate}`);
      } else if (event.type === 'judgment.opened') {
        judgments.set(event.judgmentId, `${event.taskId} judgment (${event.purpose})`);
      }
      // The map has one function per tag for exactly that event; TypeScript cannot follow the computed key.
      return (describe[event.type] as (event: DomainEvent, names: EventNames) => string)(event, names);
    },
    worthTelling: (event) => !quiet.has(event.type),
  };
}
