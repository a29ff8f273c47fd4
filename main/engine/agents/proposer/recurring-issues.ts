import type { DeliverableCheck } from '../evidence/bundle.ts';
import type { HistoryEntry } from './proposer-inputs.ts';

export interface RecurringIssue {
  readonly issue: string;
  /** ascending */
  readonly versions: readonly number[];
}

/** Facts of the preflight that state a defect; the others only describe. */
const defect = /^(not |binary |contains bare|none of|holds no|only white)|values are NaN/;
/** Counts differ from run to run; the defect is the same. */
const withoutNumbers = (text: string): string => text.replace(/^\d+ of \d+ /, 'some ').replace(/\d+ /g, '');

/**
 * Defects that programs saw in at least two versions: deliverables missing or unusable, halts, failed proposals.
 * Most frequent first, then the most recent, then by text.
 */
export function recurringIssues(history: readonly HistoryEntry[]): RecurringIssue[] {
  const seen = new Map<string, Set<number>>();
  for (const entry of history)
    for (const issue of issuesOf(entry)) seen.set(issue, (seen.get(issue) ?? new Set()).add(entry.version));
  return [...seen]
    .map(([issue, versions]) => ({ issue, versions: [...versions].sort((a, b) => a - b) }))
    .filter(({ versions }) => versions.length >= 2)
    .sort(
      (a, b) =>
        b.versions.length - a.versions.length ||
        (b.versions.at(-1) ?? 0) - (a.versions.at(-1) ?? 0) ||
        (a.issue < b.issue ? -1 : 1),
    );
}

function issuesOf(entry: HistoryEntry): string[] {
  if (entry.block === null) return ['the proposed plan could not be used'];
  const halt = entry.ending?.outcome === 'halted' ? [`execution halted: ${entry.ending.haltReason ?? 'unknown'}`] : [];
  return [...halt, ...entry.deliverables.flatMap(deliverableIssues)];
}

function deliverableIssues({ path, status, facts }: DeliverableCheck): string[] {
  if (status !== 'present') return [`${path} ${status}`];
  return facts.filter((fact) => defect.test(fact)).map((fact) => `${path}: ${withoutNumbers(fact)}`);
}
