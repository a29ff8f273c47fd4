import {
  assertHistory,
  consumedUpdates,
  executable,
  type JudgmentState,
  nextVersion,
  pendingExecutions,
  type RetentionPolicy,
  type SearchAction,
  type SearchHistory,
  type Standing,
  verdictOf,
} from './retention-history.ts';

interface Fold {
  readonly standing: Standing;
  /** the first question without an answer; nothing later is decided before it */
  readonly open: Omit<JudgmentState, 'verdict'> | null;
}

/** Versions in order: beat the reference, then (from the second winner on) the champion. */
function fold(history: SearchHistory): Fold {
  let champion: number | null = null;
  const standing = (): Standing => ({ version: champion ?? 0, provenWin: champion !== null });
  for (const { version, execution } of executable(history)) {
    if (execution === 'pending') break;
    if (execution === 'halted') continue;
    const against = { purpose: 'reference', challenger: version, incumbent: 'reference' } as const;
    const verdict = verdictOf(history, against);
    if (verdict === undefined) return { standing: standing(), open: against };
    if (verdict !== 'challenger') continue;
    if (champion === null) {
      champion = version;
      continue;
    }
    const duel = { purpose: 'arbitration', challenger: version, incumbent: champion } as const;
    const outcome = verdictOf(history, duel);
    if (outcome === undefined) return { standing: standing(), open: duel };
    if (outcome === 'challenger') champion = version;
  }
  return { standing: standing(), open: null };
}

/** The optimizer revises the current design: the newest executed version, halted ones included (a failure is evidence). */
function currentDesign(history: SearchHistory): number {
  const versions = executable(history);
  return versions[versions.length - 1]?.version ?? 0;
}

/**
 * Fixed reference with champion arbitration (the public implementation's rule, arXiv 2610.12176). Every version is
 * judged against one run of the bare task. The first that beats it becomes champion; a later one that beats it takes
 * the crown only by winning a direct comparison with the champion; ties and losses change nothing. Without a winner v0
 * holds the crown without a proven win. The last version is judged, and nothing is proposed after it.
 */
export const fixedReferencePolicy: RetentionPolicy = {
  id: 'fixed-reference',
  next(history): readonly SearchAction[] {
    assertHistory(history);
    const executions = pendingExecutions(history);
    if (executions.length > 0) return executions;
    const { standing, open } = fold(history);
    if (open) return [{ kind: 'judge', ...open }];
    if (consumedUpdates(history) < history.updates)
      return [{ kind: 'propose', version: nextVersion(history), basedOn: currentDesign(history) }];
    return [{ kind: 'done', champion: standing.version, provenWin: standing.provenWin }];
  },
  champion(history): Standing {
    assertHistory(history);
    return fold(history).standing;
  },
};
