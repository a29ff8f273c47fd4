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
  readonly retained: number;
  readonly open: Omit<JudgmentState, 'verdict'> | null;
}

/** Versions in order, each against the workspace of the best retained before it. */
function fold(history: SearchHistory): Fold {
  let retained = 0;
  for (const { version, execution } of executable(history)) {
    if (version === 0) continue;
    if (execution === 'pending') break;
    if (execution === 'halted') continue;
    const duel = { purpose: 'retained', challenger: version, incumbent: retained } as const;
    const verdict = verdictOf(history, duel);
    if (verdict === undefined) return { retained, open: duel };
    if (verdict === 'challenger') retained = version;
  }
  return { retained, open: null };
}

const finalQuestion = (retained: number) =>
  ({ purpose: 'final', challenger: retained, incumbent: 'reference' }) as const;

const hasHalted = ({ versions }: SearchHistory, version: number): boolean =>
  versions.some((v) => v.version === version && v.execution === 'halted');

function standingOf(history: SearchHistory, retained: number): Standing {
  const won = verdictOf(history, finalQuestion(retained)) === 'challenger';
  return { version: retained, provenWin: won && !hasHalted(history, retained) };
}

/**
 * Elite of size 1 (the algorithm of arXiv 2610.12176). v0 is retained at first; each later version is judged against
 * the retained best's workspace and replaces it on a win; a proposal is based on the retained one. At the end the
 * retained version is judged once against the reference: only a win is proven. A retained v0 that halted cannot win,
 * so it is not asked. A person's version that takes the crown after the end is judged against the reference anew.
 */
export const elitePolicy: RetentionPolicy = {
  id: 'elite',
  next(history): readonly SearchAction[] {
    assertHistory(history);
    const executions = pendingExecutions(history);
    if (executions.length > 0) return executions;
    const { retained, open } = fold(history);
    if (open) return [{ kind: 'judge', ...open }];
    if (consumedUpdates(history) < history.updates)
      return [{ kind: 'propose', version: nextVersion(history), basedOn: retained }];
    const final = finalQuestion(retained);
    if (!hasHalted(history, retained) && verdictOf(history, final) === undefined) return [{ kind: 'judge', ...final }];
    const { provenWin } = standingOf(history, retained);
    return [{ kind: 'done', champion: retained, provenWin }];
  },
  champion(history): Standing {
    assertHistory(history);
    return standingOf(history, fold(history).retained);
  },
};
