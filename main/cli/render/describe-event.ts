import type { DomainEvent, EventOf, EventType, StageName } from '../../common/domain/events.ts';
import { formatBytes, formatCount } from './format.ts';

/** What earlier events said about ids that later ones only name. */
export interface EventNames {
  /** "stopping-distance collect v2 run 1" of an episode, or a plain word when its plan was not seen */
  episode(episodeId: string): string;
  /** the task and purpose of a judgment */
  judgment(judgmentId: string): string;
  /** 'L1, set "default"' of a rollout set */
  set(setId: string): string;
  /** 'L1 against L0, set "default"' of a comparison */
  comparison(comparisonId: string): string;
}

type Describe = { readonly [T in EventType]: (event: EventOf<T>, names: EventNames) => string };

const short = (hash: string): string => hash.slice(0, 12);

const describe: Describe = {
  'experiment.created': (e) => `Experiment "${e.name}" created, configuration ${short(e.configHash)}.`,
  'model.registered': (e) => `Model ${e.modelId} registered: ${e.architecture}, ${formatBytes(e.bytes)}.`,
  'generation.registered': (e) => `Generation L${e.number} is model ${e.modelId}.`,
  'task.registered': (e) => `Task ${e.taskId} (${e.split}): ${e.title}`,
  'run.started': (e) => {
    const cycles = e.cycles ?? [e.cycle];
    return `Run started${cycles[0] === 0 ? '' : `, cycle ${cycles.join(' and ')}`}: ${e.stages.join(', ')}.`;
  },
  'run.ended': (e) => `Run ${e.state}: ${e.message}`,
  'stage.started': (e) => `${stageOf(e)} started.`,
  'stage.ended': (e) => `${stageOf(e)} ${e.state}${e.message === '' ? '.' : `: ${e.message}`}`,
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
      `${e.leftOut === undefined ? '' : `, ${e.leftOut.length} left out because of findings`}` +
      `${e.flagged ? '; flagged, the fits disagree' : ''}.`
    );
  },
  'episode.checked': (e, names) =>
    `${names.episode(e.episodeId)}: checked, ${e.findings === 0 ? 'no finding' : e.findings === 1 ? '1 finding' : `${e.findings} findings`}.`,
  'finding.recorded': (e, names) => `${names.episode(e.episodeId)}: ${e.severity}: ${e.message}`,
  'finding.decided': (e) => `Finding ${e.findingId} ${e.decision}${e.note === '' ? '.' : `: ${e.note}`}`,
  'gate.opened': (e) => `Stopped for a person (${e.kind}): ${e.message}`,
  'gate.decided': (e) => `Gate ${e.gateId} ${e.decision}${e.note === '' ? '.' : `: ${e.note}`}`,
  'task.excluded': (e) => `${e.taskId}: excluded at ${e.stage}: ${e.reason}`,
  'training.started': (e) =>
    e.fromStep === 0
      ? `Training begins: ${e.steps} steps.`
      : `Training goes on after step ${e.fromStep} of ${e.steps}, from its checkpoint.`,
  'training.stepped': (e) =>
    `step ${e.step}: loss ${e.loss.toFixed(4)}, gradient norm ${e.gradNorm.toFixed(2)}, ` +
    `${formatCount(e.tokens)} tokens in ${e.seconds.toFixed(1)} s.`,
  'training.validated': (e) =>
    `validation at step ${e.step}: ${e.loss === null ? 'no loss' : `loss ${e.loss.toFixed(4)}`} over ${formatCount(e.labelledTokens)} tokens.`,
  'training.checkpointed': (e) => `checkpoint at step ${e.step}: ${formatBytes(e.bytes)}.`,
  'training.ended': (e) => `Training ${e.state} at step ${e.step}. ${e.message}`.trimEnd(),
  'checkpoint.chosen': (e) =>
    `Checkpoint of step ${e.step} chosen ` +
    `${e.by === 'person' ? 'by a person' : 'for the lowest validation loss'}${e.loss === null ? '' : ` (${e.loss.toFixed(4)})`}.`,
  'adapter.exported': (e) => `Adapter of rank ${e.rank} written: ${formatBytes(e.bytes)}.`,
  'parity.measured': (e) =>
    `Served adapter ${e.passed ? 'equals' : 'DIFFERS from'} the trained one: parity ${e.passed ? 'passed' : 'failed'}.`,
  'windows.rendered': (e) =>
    `Windows rendered: ${formatCount(e.windows)}, ${formatCount(e.labelledTokens)} of ${formatCount(e.tokens)} tokens trained.`,
  pruned: (e) => `Pruned ${e.attemptIds.length} attempts, ${formatBytes(e.bytes)}.`,
  'rollout-set.created': (e, names) =>
    `Rollouts of ${names.set(e.setId)}: ${e.taskIds.length} tasks, ${e.count} runs each, seed base ${e.seedBase}.`,
  'rollout-set.completed': (e, names) =>
    `Rollouts of ${names.set(e.setId)} are done: ${e.completed} of ${e.runs} completed, the others halted.`,
  'comparison.opened': (e, names) =>
    `Comparison of ${names.comparison(e.comparisonId)}: ${e.pairs} pairs, L${e.evaluatorGeneration} judges.`,
  'comparison.completed': (e, names) => `Comparison of ${names.comparison(e.comparisonId)} is done.`,
};

/** Cycle 0 is outside the cycles. */
const stageOf = ({ cycle, stage }: { readonly cycle: number; readonly stage: StageName }): string =>
  cycle === 0 ? `Stage ${stage}` : `Cycle ${cycle}, stage ${stage}`;

/** Names an episode so that a search run, a collected run and a rollout of one task cannot be taken for each other. */
function episodeName(event: EventOf<'episode.planned'>, names: EventNames): string {
  const { taskId, cycle, stage, workflowVersion, replicate, setId } = event;
  const version = workflowVersion === null ? 'bare prompt' : `v${workflowVersion}`;
  const run = `run ${replicate + 1}`;
  if (setId !== undefined) return `${taskId} rollout ${run} (${names.set(setId)})`;
  const where = cycle > 1 ? `${taskId} cycle ${cycle}` : taskId;
  return `${where} ${stage} ${version}${stage === 'search' ? '' : ` ${run}`}`;
}

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
  'finding.recorded',
]);

export interface EventDescriber {
  /** One line for any event. Also learns the names that later events use, so feed it every event. */
  line(event: DomainEvent): string;
  worthTelling(event: DomainEvent): boolean;
}

export function createEventDescriber(): EventDescriber {
  const episodes = new Map<string, string>();
  const judgments = new Map<string, string>();
  const sets = new Map<string, string>();
  const comparisons = new Map<string, string>();
  const names: EventNames = {
    episode: (id) => episodes.get(id) ?? 'An episode',
    judgment: (id) => judgments.get(id) ?? 'A judgment',
    set: (id) => sets.get(id) ?? 'a set',
    comparison: (id) => comparisons.get(id) ?? 'two sets',
  };
  const learn = (event: DomainEvent): void => {
    if (event.type === 'episode.planned') episodes.set(event.episodeId, episodeName(event, names));
    else if (event.type === 'judgment.opened') {
      const pair = event.comparisonId === undefined ? '' : ` of ${names.comparison(event.comparisonId)}`;
      judgments.set(event.judgmentId, `${event.taskId} judgment (${event.purpose})${pair}`);
    } else if (event.type === 'rollout-set.created') sets.set(event.setId, `L${event.generation}, set "${event.name}"`);
    else if (event.type === 'comparison.opened')
      comparisons.set(
        event.comparisonId,
        `L${event.firstGeneration} against L${event.secondGeneration}, set "${event.setName}"`,
      );
  };
  return {
    line: (event) => {
      learn(event);
      // The map has one function per tag for exactly that event; TypeScript cannot follow the computed key.
      return (describe[event.type] as (event: DomainEvent, names: EventNames) => string)(event, names);
    },
    worthTelling: (event) => !quiet.has(event.type),
  };
}
