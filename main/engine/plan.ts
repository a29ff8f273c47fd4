import type { ExperimentConfig } from '../common/domain/config.ts';
import type { PlanEstimate } from '../common/protocol/engine.ts';
import type { Experiment } from './experiments.ts';
import { matchCount } from './status.ts';
import type { Store } from './store/store.ts';

/** What one unit costs: tokens evaluated and generated, and where the figure comes from. */
export interface UnitCosts {
  readonly episode: { readonly prompt: number; readonly generated: number; readonly diskGB: number };
  readonly judgment: { readonly prompt: number; readonly generated: number };
  readonly proposal: { readonly prompt: number; readonly generated: number };
  readonly tokensPerSecond: { readonly prompt: number; readonly generated: number };
  readonly measured: boolean;
}

/** Units of each stage by the configuration alone: an upper bound where the search decides. */
export function plannedUnits(config: ExperimentConfig) {
  const train = config.tasks.train.length;
  const searched = train + (config.search.searchTestTasks ? config.tasks.test.length : 0);
  const versions = config.search.updates + 1;
  const perPair = config.judging.orders;
  // every later version may need an arbitration (fixed-reference), or the final check (elite)
  const judgments = config.search.policy === 'elite' ? config.search.updates + 1 : versions + config.search.updates;
  return {
    search: {
      episodes: searched * (versions + 1),
      judgments: searched * judgments * perPair,
      proposals: searched * config.search.updates,
    },
    collect: { episodes: train * config.collect.runs, judgments: 0, proposals: 0 },
    rank: {
      episodes: 0,
      judgments: train * matchCount(config.collect.runs, config.rank.opponents) * perPair,
      proposals: 0,
    },
    select: { episodes: 0, judgments: 0, proposals: 0 },
  } as const;
}

/** Figures used before anything ran: stated as assumptions, replaced by measured ones as soon as there are some. */
function assumedCosts(config: ExperimentConfig): UnitCosts {
  const generated = Math.min(config.executor.episodeTokens, 20 * Math.min(config.executor.turnTokens, 2000));
  const context = config.model.contextSize;
  return {
    episode: { prompt: Math.round(Math.min(context, 24_000) * 1.5), generated, diskGB: 0.05 },
    judgment: {
      prompt: Math.round(Math.min(context, 40_000) * 0.7),
      generated: Math.min(config.judging.callTokens, 3000),
    },
    proposal: {
      prompt: Math.round(Math.min(context, 40_000) * 0.8),
      generated: Math.min(config.search.callTokens, 6000),
    },
    tokensPerSecond: { prompt: 600, generated: 60 },
    measured: false,
  };
}

/** Costs from what this experiment already did, or assumptions while it has done too little. */
export function unitCosts(store: Store, experiment: Experiment): UnitCosts {
  const assumed = assumedCosts(experiment.config);
  const costs = store.threads.costs(experiment.experimentId);
  const totals = store.threads.totals(experiment.experimentId);
  const of = (kind: 'attempt' | 'presentation' | 'proposal') =>
    costs.find((row) => row.ownerKind === kind && row.owners > 0);
  const attempt = of('attempt');
  if (!attempt || totals.prefillMs <= 0 || totals.decodeMs <= 0) return assumed;
  const mean = (kind: 'presentation' | 'proposal', fallback: UnitCosts['judgment']) => {
    const row = of(kind);
    return row ? { prompt: row.evaluatedTokens / row.owners, generated: row.completionTokens / row.owners } : fallback;
  };
  const bytes = store.episodes
    .attemptsOfExperiment(experiment.experimentId)
    .reduce((sum, row) => sum + row.workspaceBytes, 0);
  return {
    episode: {
      prompt: attempt.evaluatedTokens / attempt.owners,
      generated: attempt.completionTokens / attempt.owners,
      diskGB: bytes / attempt.owners / 1e9,
    },
    judgment: mean('presentation', assumed.judgment),
    proposal: mean('proposal', assumed.proposal),
    tokensPerSecond: {
      prompt: totals.evaluatedTokens / (totals.prefillMs / 1000),
      generated:
        (totals.completionTokens / (totals.decodeMs / 1000)) *
        Math.min(experiment.config.parallel, experiment.config.model.sequences),
    },
    measured: true,
  };
}

/**
 * What a run of these cycles will take, a row a stage; every cycle has the same units. Hours count model time only;
 * commands the agents run come on top.
 */
export function estimatePlan(store: Store, experiment: Experiment, cycles: readonly number[] = [1]): PlanEstimate {
  const { config } = experiment;
  const costs = unitCosts(store, experiment);
  const units = plannedUnits(config);
  const ofStage = (stage: keyof typeof units) => {
    const { episodes, judgments, proposals } = units[stage];
    const promptTokens =
      episodes * costs.episode.prompt + judgments * costs.judgment.prompt + proposals * costs.proposal.prompt;
    const generatedTokens =
      episodes * costs.episode.generated + judgments * costs.judgment.generated + proposals * costs.proposal.generated;
    const seconds = promptTokens / costs.tokensPerSecond.prompt + generatedTokens / costs.tokensPerSecond.generated;
    return {
      stage,
      episodes,
      judgments,
      proposals,
      promptTokens: Math.round(promptTokens),
      generatedTokens: Math.round(generatedTokens),
      hours: seconds / 3600,
      diskGB: episodes * costs.episode.diskGB,
    };
  };
  const stages = Object.keys(units) as (keyof typeof units)[];
  const rows = cycles.flatMap((cycle) => stages.map((stage) => ({ cycle, ...ofStage(stage) })));
  const speed = `${Math.round(costs.tokensPerSecond.prompt)} prompt and ${Math.round(costs.tokensPerSecond.generated)} generated tokens a second`;
  return {
    rows,
    measured: costs.measured,
    assumptions: [
      costs.measured
        ? `Speed and tokens per unit as measured in this experiment: ${speed}.`
        : `Nothing was measured yet. Assumed: ${speed}.`,
      'Search counts are an upper bound: arbitrations happen only when a version beats the reference.',
      'Hours are model time; commands run by the agents come on top.',
      'Training is not in the rows: its steps follow from the rendered windows, and the train stage says steps and hours before it begins.',
    ],
  };
}
