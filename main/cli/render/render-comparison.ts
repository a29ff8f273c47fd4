import type { ComparisonFigures, ComparisonResult, SideFigures } from '../../common/domain/comparison.ts';
import type { Rate } from '../../common/domain/wilson.ts';
import type { ComparisonReport, EvaluationList, RolloutReport } from '../../common/protocol/evaluation.ts';
import { formatCount, table } from './format.ts';

const percent = (share: number): string => `${Math.round(share * 100)}%`;

/** "75% [41%, 93%]", or "-" when there was no trial. */
export const formatRate = ({ rate, low, high }: Rate): string =>
  rate === null ? '-' : `${percent(rate)} [${percent(low)}, ${percent(high)}]`;

const tokens = ({ meanOutputTokens }: SideFigures): string =>
  meanOutputTokens === null ? '-' : formatCount(meanOutputTokens);
const completed = (side: SideFigures): string => `${side.completed}/${side.runs}`;
const delegated = (side: SideFigures): string => `${side.delegated}/${side.runs}`;

interface Labelled<T> {
  readonly label: string;
  /** null: an empty row */
  readonly figures: T | null;
}

/** One row a task, then, after an empty one, the splits and everything; a split that is everything has no own row. */
function labelled<T>(of: {
  readonly tasks: readonly (T & { readonly taskId: string; readonly split: string })[];
  readonly splits: readonly (T & { readonly split: string })[];
  readonly all: T;
}): Labelled<T>[] {
  const [only] = of.splits;
  return [
    ...of.tasks.map((row) => ({ label: row.taskId, figures: row })),
    { label: '', figures: null },
    ...(of.splits.length > 1 ? of.splits.map((row) => ({ label: `all ${row.split}`, figures: row })) : []),
    { label: of.splits.length === 1 && only ? `all (${only.split})` : 'all', figures: of.all },
  ];
}

/** Two narrow tables, how the work was judged and what the runs did, then what the figures rest on. */
export function renderComparison(report: ComparisonReport): string {
  const { first, second, result } = report;
  const title = `L${first} against L${second}, set "${report.set}"`;
  if (result === null) return `${title}: ${report.judged} of ${report.pairs} pairs judged, not finished.`;
  const rows = labelled<ComparisonFigures>(result);
  return [
    `${title}: bare prompt, ${result.tasks.length} tasks, ${report.count} runs each, judged by L${report.evaluator}`,
    '',
    table(
      ['task', 'W', 'L', 'T', 'n', 'W/(W+L) [95%]'],
      rows.map(({ label, figures }) => [label, ...(figures ? verdicts(figures) : [])]),
      { right: [1, 2, 3, 4] },
    ),
    '',
    table(
      ['task', ...['completed', 'delegated', 'tokens'].flatMap((what) => [`${what} L${first}`, `L${second}`])],
      rows.map(({ label, figures }) => [
        label,
        ...(figures ? [completed, delegated, tokens].flatMap((of) => [of(figures.first), of(figures.second)]) : []),
      ]),
      { right: [1, 2, 3, 4, 5, 6] },
    ),
    '',
    ...caveats(report, result).map((line) => `  ${line}`),
  ].join('\n');
}

const verdicts = (figures: ComparisonFigures): string[] => [
  String(figures.wins),
  String(figures.losses),
  String(figures.ties),
  String(figures.pairs),
  formatRate(figures.winRate),
];

function caveats({ first, evaluator }: ComparisonReport, { all, judging }: ComparisonResult): string[] {
  const decided = all.wins + all.losses;
  return [
    `n = ${all.pairs} pairs of the same task and run number; ${decided} are decided, ties are left out of W/(W+L).`,
    `W: L${first} is better. L${evaluator} judged each pair in both orders, and a win needs both: in ${judging.flipped} pairs`,
    `the winner changed with the order, which makes a tie. Shown first won ${formatRate(judging.firstSlotRate)} of`,
    `${judging.decidedPresentations} decided presentations (50% is no lean).`,
    'Intervals are Wilson 95%; runs of one task are not independent, so the true uncertainty is larger.',
    `L${evaluator} and its descendants share blind spots: its preference is not truth.`,
    ...(judging.haltedPairs > 0
      ? [`${judging.haltedPairs} pairs have a halted run: judged by what it left, counted as not completed.`]
      : []),
    ...(judging.invalidPresentations > 0 ? [`${judging.invalidPresentations} invalid verdicts count as ties.`] : []),
    ...(judging.unlikePairs > 0
      ? [`WARNING: in ${judging.unlikePairs} pairs the two runs had different prompts, inputs or sandbox modes.`]
      : []),
    'Tokens: generated per run, all threads. Delegated: runs that called a worker at least once.',
  ];
}

/** What the runs of one set did. */
export function renderRollouts(report: RolloutReport): string {
  const state = report.complete ? 'complete' : 'not finished';
  return [
    `L${report.generation}, set "${report.set}": bare prompt, ${report.count} runs a task, ${report.settled} of ${report.planned} runs, ${state}`,
    '',
    table(
      ['task', 'runs', 'completed [95%]', 'delegated [95%]', 'tokens'],
      labelled<SideFigures>(report).map(({ label, figures }) => [label, ...(figures ? doings(figures) : [])]),
      { right: [1, 4] },
    ),
    '',
    '  Tokens are generated ones per run, all threads. Intervals are Wilson 95%.',
  ].join('\n');
}

const doings = (side: SideFigures): string[] => [
  String(side.runs),
  formatRate(side.completionRate),
  formatRate(side.delegationRate),
  tokens(side),
];

/** Which sets and comparisons there are. */
export function renderEvaluations({ sets, comparisons }: EvaluationList): string {
  if (sets.length === 0) return 'No rollouts yet; make some with: mass rollout NAME --generation L0';
  return [
    table(
      ['set', 'generation', 'runs a task', 'done'],
      sets.map((row) => [row.set, `L${row.generation}`, String(row.count), `${row.settled} of ${row.planned}`]),
    ),
    ...(comparisons.length === 0
      ? []
      : [
          '',
          table(
            ['comparison', 'set', 'judge', 'judged'],
            comparisons.map((row) => [
              `L${row.first} against L${row.second}`,
              row.set,
              `L${row.evaluator}`,
              `${row.judged} of ${row.pairs}`,
            ]),
          ),
        ]),
  ].join('\n');
}
