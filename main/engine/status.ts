import type { StageName } from '../common/domain/events.ts';
import { type RunStanding, standingOf } from '../common/domain/quarantine.ts';
import { opponentsPossible } from '../common/domain/schedule.ts';
import type { ExperimentStatus, StageProgress, TaskProgress } from '../common/protocol/engine.ts';
import type { FindingCounts } from '../common/protocol/integrity.ts';
import type { Experiment } from './experiments.ts';
import { gateSummary } from './handlers/integrity.ts';
import type { EpisodeRow } from './store/repositories/episodes.ts';
import type { GenerationRow } from './store/repositories/experiments.ts';
import type { JudgmentRow } from './store/repositories/judgments.ts';
import type { TaskRow } from './store/repositories/tasks.ts';
import type { Store } from './store/store.ts';
import { trainingProgress } from './training-status.ts';

/** Stages whose units take alike: episodes, judgments, proposals, selections. */
const episodeStages: readonly StageName[] = ['search', 'collect', 'rank', 'select'];
const stageNames: readonly StageName[] = [...episodeStages, 'render', 'train', 'export'];

export interface StatusOptions {
  /** what a live run says of itself */
  readonly doing: string | null;
  /** who holds the device */
  readonly lease: string | null;
  readonly cycle?: number | undefined;
}

interface CycleView {
  readonly store: Store;
  readonly experiment: Experiment;
  readonly cycle: number;
}

/**
 * Where a cycle of an experiment stands, computed from its rows. Without a
 * cycle it is the running one, else the latest that was begun. Tokens, time and failures are of the whole experiment.
 */
export function experimentStatus(
  store: Store,
  experiment: Experiment,
  { doing, lease, cycle: asked }: StatusOptions,
): ExperimentStatus {
  const { experimentId, config } = experiment;
  const cycle = asked ?? currentCycle(store, experimentId);
  const view: CycleView = { store, experiment, cycle };
  const runs = store.experiments.runs(experimentId);
  const last = runs.at(-1);
  const tasks = store.tasks.of(experimentId).map((row) => taskProgress(view, row));
  const stages = stageNames.map((stage) => stageProgress(view, stage, tasks));
  const training = trainingProgress(store, { experimentId, cycle });
  const totals = store.threads.totals(experimentId);
  const seconds = runs.reduce((sum, run) => sum + ((run.endedAt ?? Date.now()) - run.startedAt) / 1000, 0);
  const generation = store.experiments.generations(experimentId).find((row) => row.number === cycle - 1);
  return {
    name: experiment.name,
    cycle,
    state: last?.state ?? 'new',
    message: last?.state === 'running' ? (doing ?? '') : (last?.message ?? 'Not started.'),
    configHash: experiment.configHash,
    model: generation ? describeGeneration(generation) : `${config.model.id}, L${cycle - 1} not made yet`,
    sandbox: config.sandbox.mode,
    notices: noticesOf(experiment),
    gates: store.integrity
      .gates(experimentId)
      .filter((gate) => gate.state === 'open')
      .map(gateSummary),
    findings: countFindings(store.integrity.findings(experimentId)),
    stages,
    training,
    lease,
    tasks,
    tokens: {
      evaluatedPrompt: totals.evaluatedTokens,
      cachedPrompt: totals.cachedTokens,
      generated: totals.completionTokens,
      ledgerMisses: totals.ledgerMisses,
    },
    seconds,
    etaSeconds: last?.state !== 'running' ? null : (training?.etaSeconds ?? etaSeconds(stages, seconds)),
    bytesOnDisk: bytesOnDisk(store, experimentId),
    failures: failuresOf(store, experimentId),
  };
}

function currentCycle(store: Store, experimentId: string): number {
  const begun = store.experiments.stages(experimentId).filter((row) => row.cycle > 0);
  const running = begun.find((row) => row.state === 'running');
  return running?.cycle ?? Math.max(1, ...begun.map((row) => row.cycle));
}

const describeGeneration = ({ number, modelId, modelSha256, adapterSha256 }: GenerationRow): string =>
  `${modelId} (${modelSha256.slice(0, 8)}) as L${number}${adapterSha256 === null ? '' : `, adapter ${adapterSha256.slice(0, 8)}`}`;

function noticesOf({ config }: Experiment): string[] {
  const notices: string[] = [];
  if (config.sandbox.mode === 'host')
    notices.push('SANDBOX OFF: model-written commands run on this machine unprotected.');
  if (!config.search.requireProvenWin)
    notices.push('requireProvenWin is false: a task whose workflow never beat the bare prompt supplies data too.');
  if (!config.integrity.quarantine)
    notices.push('integrity.quarantine is false: runs with findings are selected like any other.');
  const off = Object.entries(config.gates).flatMap(([gate, on]) => (on ? [] : [`gates.${gate}`]));
  if (off.length > 0) notices.push(`No stop for a person: ${off.join(', ')} ${off.length === 1 ? 'is' : 'are'} false.`);
  if (config.judging.orders === 1) notices.push('Judged in one order only: the first-slot lean is not controlled.');
  return notices;
}

function taskProgress(view: CycleView, row: TaskRow): TaskProgress {
  const { store, experiment, cycle } = view;
  const { experimentId, config } = experiment;
  const key = { experimentId, cycle, taskId: row.taskId };
  const search = store.episodes.ofTask({ ...key, stage: 'search' });
  const judgments = store.judgments.ofTask({ ...key, stage: 'search' });
  const champion = store.workflows.champion(key);
  const collected = store.episodes.ofTask({ ...key, stage: 'collect' });
  const matches = store.tournaments.matches(key);
  const decided = store.judgments.ofTask({ ...key, stage: 'rank' }).filter((judgment) => judgment.result !== null);
  const decisions = new Map(
    store.tournaments.entries({ experimentId, cycle }).map((entry) => [entry.episodeId, entry.decision]),
  );
  const replicateOf = new Map(collected.map((episode) => [episode.episodeId, episode.replicate]));
  const excluded = store.tasks.exclusions({ experimentId, cycle }).find((exclusion) => exclusion.taskId === row.taskId);
  const supplies = row.split === 'train' && !excluded;
  return {
    taskId: row.taskId,
    split: row.split,
    versions: store.workflows.ofTask(key).map((version) => ({
      version: version.version,
      author: version.author,
      status: version.status,
      verdict:
        version.status === 'proposal_failed' ? 'proposal failed' : verdictText(version.version, search, judgments),
    })),
    champion: champion?.version ?? null,
    provenWin: champion ? champion.provenWin === 1 : null,
    collected: collected.filter((episode) => episode.attempt !== null).length,
    collectPlanned: supplies ? config.collect.runs : 0,
    matches: decided.length,
    matchesPlanned: !supplies ? 0 : matches.length || matchCount(config.collect.runs, config.rank.opponents),
    ratings: store.tournaments
      .ratings(key)
      .filter((rating) => rating.method === 'mm')
      .map((rating) => ({
        run: (replicateOf.get(rating.episodeId) ?? 0) + 1,
        rank: rating.rank,
        score: rating.score,
        standardError: rating.standardError,
        decision: decisions.get(rating.episodeId) ?? null,
        ...standing(view, rating.episodeId),
      })),
    flagged: store.tournaments.selection(key)?.flagged === 1,
    excluded: excluded?.reason ?? null,
  };
}

/** What the checks found in a ranked run, and whether that keeps it out of the selection. */
function standing(
  { store, experiment }: CycleView,
  episodeId: string,
): { findings: FindingCounts; standing: RunStanding } {
  const rows = store.integrity.findingsOf(episodeId);
  const quarantined = experiment.config.integrity.quarantine;
  return { findings: countFindings(rows), standing: quarantined ? standingOf(rows.map((row) => row.state)) : 'free' };
}

function countFindings(rows: readonly { readonly state: keyof FindingCounts }[]): FindingCounts {
  const counts = { open: 0, cleared: 0, upheld: 0 };
  for (const { state } of rows) counts[state]++;
  return counts;
}

export const matchCount = (runs: number, opponents: number): number =>
  Math.floor((runs * opponentsPossible(runs, opponents)) / 2);

/** "reference: won, champion: tied" for one version. */
function verdictText(
  version: number,
  episodes: readonly (EpisodeRow & { attempt: { outcome: string | null; haltReason: string | null } | null })[],
  judgments: readonly JudgmentRow[],
): string {
  const episode = episodes.find((row) => row.workflowVersion === version);
  if (!episode) return 'not yet run';
  const words = judgments
    .filter((row) => row.firstEpisodeId === episode.episodeId && row.result !== null)
    .map(
      (row) =>
        `${row.purpose === 'reference' || row.purpose === 'final' ? 'reference' : 'champion'}: ${row.result === 'first' ? 'won' : row.result === 'second' ? 'lost' : 'tied'}${row.invalidPresentations > 0 ? ' (invalid verdict)' : ''}`,
    );
  if (episode.attempt?.outcome === 'halted') words.unshift(`halted (${episode.attempt.haltReason})`);
  if (words.length === 0) return episode.attempt ? 'run, not judged' : 'running';
  return words.join(', ');
}

function stageProgress(
  { store, experiment, cycle }: CycleView,
  stage: StageName,
  tasks: readonly TaskProgress[],
): StageProgress {
  const { experimentId, config } = experiment;
  const row = store.experiments
    .stages(experimentId)
    .find((candidate) => candidate.stage === stage && candidate.cycle === cycle);
  const { done, planned } = unitsOf(stage, { store, experiment, cycle, tasks, updates: config.search.updates });
  return { stage, state: row?.state ?? 'not yet run', done, planned, message: row?.message ?? '' };
}

interface UnitsInput extends CycleView {
  readonly tasks: readonly TaskProgress[];
  readonly updates: number;
}

function unitsOf(
  stage: StageName,
  { store, experiment, cycle, tasks, updates }: UnitsInput,
): { done: number; planned: number } {
  const { experimentId, config } = experiment;
  const supplying = tasks.filter((task) => task.split === 'train' && task.excluded === null);
  const sum = (pick: (task: TaskProgress) => number, of = supplying) =>
    of.reduce((total, task) => total + pick(task), 0);
  switch (stage) {
    case 'search': {
      const searched = tasks.filter((task) => task.split === 'train' || config.search.searchTestTasks);
      const episodes = store.episodes
        .ofStage({ experimentId, cycle, stage })
        .filter((episode) => episode.attempt !== null).length;
      const judged = store.judgments
        .ofStage({ experimentId, cycle, stage })
        .filter((row) => row.result !== null).length;
      const proposed = sum((task) => task.versions.filter((version) => version.author === 'proposer').length, searched);
      const finished = searched.every((task) => task.champion !== null);
      const done = episodes + judged + proposed;
      // reference + versions run and judged, one proposal an update; arbitrations come on top and are known only when due
      return {
        done,
        planned: finished ? done : Math.max(done, searched.length * (2 + updates + (1 + updates) + updates)),
      };
    }
    case 'collect':
      return { done: sum((task) => task.collected), planned: sum((task) => task.collectPlanned) };
    case 'rank':
      return { done: sum((task) => task.matches), planned: sum((task) => task.matchesPlanned) };
    case 'render':
      return { done: store.windowSets.ofCycle({ experimentId, cycle }) ? 1 : 0, planned: 1 };
    case 'train': {
      const training = trainingProgress(store, { experimentId, cycle });
      return { done: training?.step ?? 0, planned: training?.steps ?? config.train.steps ?? 0 };
    }
    case 'export':
      return { done: hasGeneration(store, experimentId, cycle) ? 1 : 0, planned: 1 };
    default:
      return { done: store.tournaments.selections({ experimentId, cycle }).length, planned: supplying.length };
  }
}

const hasGeneration = (store: Store, experimentId: string, number: number): boolean =>
  store.experiments.generations(experimentId).some((row) => row.number === number);

/** From units done so far; null until there is something to go by. */
function etaSeconds(all: readonly StageProgress[], seconds: number): number | null {
  const stages = all.filter(({ stage }) => episodeStages.includes(stage));
  const done = stages.reduce((sum, stage) => sum + stage.done, 0);
  const planned = stages.reduce((sum, stage) => sum + stage.planned, 0);
  return done < 3 ? null : (seconds / done) * Math.max(0, planned - done);
}

/**
 * This experiment's workspaces, plus database and bodies, which all experiments of a data folder share. Sums of rows: the
 * folders themselves hold too many files to be walked at every look.
 */
const bytesOnDisk = (store: Store, experimentId: string): number =>
  store.episodes.workspaceBytes(experimentId) + store.databaseBytes() + store.artifacts.fileBytes();

function failuresOf(store: Store, experimentId: string): string[] {
  return store.episodes
    .attemptsOfExperiment(experimentId)
    .filter((attempt) => attempt.outcome === 'infrastructure' || attempt.outcome === 'interrupted')
    .reverse()
    .slice(0, 10)
    .map((attempt) => `${attempt.attemptId}: ${attempt.outcome}: ${attempt.ending}`);
}
