import { MassError } from '../base/errors.ts';

/** What one judgment decided, both presentations taken together. */
export type Verdict = 'challenger' | 'incumbent' | 'tie';

export interface VersionState {
  readonly version: number;
  readonly parent: number | null;
  /** proposal_failed: the update was consumed without a workflow, so nothing is executed or judged */
  readonly status: 'proposed' | 'proposal_failed';
  /** halted: the model failed; the workspace is kept as evidence */
  readonly execution: 'pending' | 'completed' | 'halted';
  readonly author: 'seed' | 'proposer' | 'person';
}

export interface JudgmentState {
  readonly purpose: 'reference' | 'arbitration' | 'retained' | 'final';
  readonly challenger: number;
  readonly incumbent: number | 'reference';
  readonly verdict: Verdict;
}

/** All that has happened in one task's search. Nothing else decides what comes next, so resuming is asking again. */
export interface SearchHistory {
  /** updates the proposer may consume; the search ends with v(updates) when no person adds a version */
  readonly updates: number;
  readonly reference: 'pending' | 'completed' | 'halted';
  /** ascending, v0 (the seed) first; a number without a row (an abandoned branch) is allowed */
  readonly versions: readonly VersionState[];
  readonly judgments: readonly JudgmentState[];
}

export type SearchAction =
  | { readonly kind: 'execute'; readonly target: 'reference' | number }
  | ({ readonly kind: 'judge' } & Omit<JudgmentState, 'verdict'>)
  | { readonly kind: 'propose'; readonly version: number; readonly basedOn: number }
  | { readonly kind: 'done'; readonly champion: number; readonly provenWin: boolean };

/** Who holds the crown, and whether it has beaten the reference run. */
export interface Standing {
  readonly version: number;
  readonly provenWin: boolean;
}

/**
 * Which version of a workflow a search keeps, as a pure state machine.
 *
 * `next` is never empty, and its actions are of one kind and independent: they may run at once. It does not know what
 * is in flight, so ask again after all of them are recorded (or skip those already running). `champion` may be asked
 * at any moment and speaks of what is decided so far.
 *
 * Rules both policies share where the paper is silent:
 * - A version whose execution halted is not judged and counts as a loss: a failure can never become a win.
 * - A halted reference, or a halted incumbent, is judged as usual: the evidence shows what it left behind.
 * - A person's version is executed and judged like any other, consumes no update, and may come after `done`.
 * - The first recorded judgment of a question (purpose, challenger, incumbent) answers it.
 */
export interface RetentionPolicy {
  readonly id: 'fixed-reference' | 'elite';
  next(history: SearchHistory): readonly SearchAction[];
  champion(history: SearchHistory): Standing;
}

/** Errors: `internal` when versions do not start with a proposed v0 or do not ascend; no policy can read such a history. */
export function assertHistory({ versions }: SearchHistory): void {
  const first = versions[0];
  const ascending = versions.every((v, i) => i === 0 || v.version > (versions[i - 1]?.version ?? v.version));
  if (first?.version === 0 && first.status === 'proposed' && ascending) return;
  throw new MassError('internal', 'A search history must list its versions in ascending order, beginning with v0.', {
    details: { versions: versions.map((v) => v.version) },
  });
}

/** Versions that have a workflow, hence an execution: all but the failed proposals. */
export const executable = ({ versions }: SearchHistory): VersionState[] =>
  versions.filter((v) => v.status === 'proposed');

/** Executions not yet there; the reference first. They are independent of each other. */
export function pendingExecutions(history: SearchHistory): SearchAction[] {
  const actions: SearchAction[] = [];
  if (history.reference === 'pending') actions.push({ kind: 'execute', target: 'reference' });
  for (const v of executable(history))
    if (v.execution === 'pending') actions.push({ kind: 'execute', target: v.version });
  return actions;
}

/** The recorded answer to a question, or undefined. */
export function verdictOf(history: SearchHistory, asked: Omit<JudgmentState, 'verdict'>): Verdict | undefined {
  return history.judgments.find(
    (j) => j.purpose === asked.purpose && j.challenger === asked.challenger && j.incumbent === asked.incumbent,
  )?.verdict;
}

/** Updates consumed: every proposer version, failed ones included; seed and person versions are free. */
export const consumedUpdates = ({ versions }: SearchHistory): number =>
  versions.filter((v) => v.author === 'proposer').length;

/** The next free version number; a person's branch and a proposal draw from the same sequence. */
export const nextVersion = ({ versions }: SearchHistory): number => (versions[versions.length - 1]?.version ?? -1) + 1;
