import { z } from 'zod';
import { type PairResult, Split } from './events.ts';
import { wilsonInterval } from './wilson.ts';

/** What one rollout did, apart from how its work was judged. */
export interface ComparedRun {
  /** it ended as completed; a halted run left what it had */
  readonly completed: boolean;
  /** calls of workers */
  readonly delegations: number;
  /** generated tokens of all threads */
  readonly outputTokens: number;
  /** what the run worked with (runtime, prompts, sandbox, input files) as an opaque key: alike runs have equal keys */
  readonly conditions: string;
}

/** Two rollouts of one task and replicate, and how they were judged. */
export interface ComparedPair {
  readonly taskId: string;
  readonly split: z.infer<typeof Split>;
  readonly replicate: number;
  readonly first: ComparedRun;
  readonly second: ComparedRun;
  readonly result: PairResult;
  /** the winner changed with the order of presentation, so the pair is a tie */
  readonly flipped: boolean;
  readonly invalidPresentations: number;
  /** presentations with a usable verdict that was no tie, and how many of those the submission shown first won */
  readonly decidedPresentations: number;
  readonly firstSlotWins: number;
}

const count = z.number().int().nonnegative();
const Rate = z.object({ rate: z.number().nullable(), low: z.number(), high: z.number() });

export const SideFigures = z.object({
  runs: count,
  completed: count,
  /** completed of runs, Wilson 95% */
  completionRate: Rate,
  /** runs with at least one delegation */
  delegated: count,
  delegationRate: Rate,
  delegations: count,
  outputTokens: count,
  /** per run; null without a run */
  meanOutputTokens: z.number().nullable(),
});
export type SideFigures = z.infer<typeof SideFigures>;

const Figures = z.object({
  /** n: pairs judged */
  pairs: count,
  /** of the first generation */
  wins: count,
  losses: count,
  ties: count,
  /** wins of wins and losses, Wilson 95%; ties are left out */
  winRate: Rate,
  first: SideFigures,
  second: SideFigures,
});
export type ComparisonFigures = z.infer<typeof Figures>;

/** The whole outcome of a comparison: what `comparison.completed` keeps. */
export const ComparisonResult = z.object({
  tasks: z.array(Figures.extend({ taskId: z.string(), split: Split })),
  /** one row a split that has tasks */
  splits: z.array(Figures.extend({ split: Split })),
  all: Figures,
  judging: z.object({
    flipped: count.describe('pairs whose winner changed with the order'),
    invalidPresentations: count,
    decidedPresentations: count,
    firstSlotWins: count,
    /** of the decided presentations, Wilson 95%: 0.5 is no lean */
    firstSlotRate: Rate,
    haltedPairs: count.describe('pairs with a halted side, judged by what was left'),
    unlikePairs: count.describe('pairs whose runs worked under different conditions'),
  }),
});
export type ComparisonResult = z.infer<typeof ComparisonResult>;

/**
 * Win rates W / (W + L) of the first generation over the second with Wilson intervals, per task, per split and over all,
 * beside what the runs did. Ties are counted and left out of the rate. Rows keep the order in which tasks first appear.
 */
export function compareRollouts(pairs: readonly ComparedPair[]): ComparisonResult {
  const taskIds = [...new Set(pairs.map((pair) => pair.taskId))];
  const decided = sum(pairs, (pair) => pair.decidedPresentations);
  const slotWins = sum(pairs, (pair) => pair.firstSlotWins);
  return {
    tasks: taskIds.map((taskId) => {
      const own = pairs.filter((pair) => pair.taskId === taskId);
      return { taskId, split: own[0]?.split ?? 'train', ...figuresOf(own) };
    }),
    splits: Split.options
      .map((split) => ({ split, own: pairs.filter((pair) => pair.split === split) }))
      .filter(({ own }) => own.length > 0)
      .map(({ split, own }) => ({ split, ...figuresOf(own) })),
    all: figuresOf(pairs),
    judging: {
      flipped: pairs.filter((pair) => pair.flipped).length,
      invalidPresentations: sum(pairs, (pair) => pair.invalidPresentations),
      decidedPresentations: decided,
      firstSlotWins: slotWins,
      firstSlotRate: wilsonInterval({ successes: slotWins, trials: decided }),
      haltedPairs: pairs.filter((pair) => !pair.first.completed || !pair.second.completed).length,
      unlikePairs: pairs.filter((pair) => pair.first.conditions !== pair.second.conditions).length,
    },
  };
}

function figuresOf(pairs: readonly ComparedPair[]): ComparisonFigures {
  const results = (wanted: PairResult): number => pairs.filter((pair) => pair.result === wanted).length;
  const [wins, losses, ties] = [results('first'), results('second'), results('tie')];
  return {
    pairs: pairs.length,
    wins,
    losses,
    ties,
    winRate: wilsonInterval({ successes: wins, trials: wins + losses }),
    first: sideOf(pairs.map((pair) => pair.first)),
    second: sideOf(pairs.map((pair) => pair.second)),
  };
}

/** What the runs of one generation did. */
export function sideOf(runs: readonly ComparedRun[]): SideFigures {
  const completed = runs.filter((run) => run.completed).length;
  const delegated = runs.filter((run) => run.delegations > 0).length;
  const outputTokens = sum(runs, (run) => run.outputTokens);
  return {
    runs: runs.length,
    completed,
    completionRate: wilsonInterval({ successes: completed, trials: runs.length }),
    delegated,
    delegationRate: wilsonInterval({ successes: delegated, trials: runs.length }),
    delegations: sum(runs, (run) => run.delegations),
    outputTokens,
    meanOutputTokens: runs.length === 0 ? null : outputTokens / runs.length,
  };
}

/** The same outcome told from the other side: wins are losses, first is second. */
export function reversed(result: ComparisonResult): ComparisonResult {
  const turn = <F extends ComparisonFigures>(figures: F): F => ({
    ...figures,
    wins: figures.losses,
    losses: figures.wins,
    winRate: wilsonInterval({ successes: figures.losses, trials: figures.wins + figures.losses }),
    first: figures.second,
    second: figures.first,
  });
  return { ...result, tasks: result.tasks.map(turn), splits: result.splits.map(turn), all: turn(result.all) };
}

const sum = <T>(items: readonly T[], value: (item: T) => number): number =>
  items.reduce((total, item) => total + value(item), 0);
