import { lstat } from 'node:fs/promises';
import { walkWorkspace } from '../workspace/walk.ts';
import { deliverablesCheck } from './checks/deliverables.ts';
import { inputsCheck } from './checks/inputs.ts';
import { metricsCheck } from './checks/metrics.ts';
import type { CheckedWorkspace, FoundProblem, IntegrityCheck } from './integrity-check.ts';

/** Raised when a check finds something else than before: attempts checked by an older version are checked again. */
export const CHECKS_VERSION = 1;
const checks: readonly IntegrityCheck[] = [deliverablesCheck, inputsCheck, metricsCheck];
/** Listed for one check and attempt; a hostile workspace cannot flood the log. */
export const MAX_FINDINGS_PER_CHECK = 20;

/** What every check found in a workspace, by check, then path. A workspace that is gone is itself a finding. */
export async function runChecks(subject: Omit<CheckedWorkspace, 'walk'>): Promise<FoundProblem[]> {
  const stat = await lstat(subject.folder).catch(() => null);
  if (!stat?.isDirectory())
    return [
      {
        checkId: 'workspace.gone',
        severity: 'serious',
        path: '',
        message: 'The workspace is no longer there, so nothing in it can be checked.',
        details: {},
      },
    ];
  const workspace = { ...subject, walk: await walkWorkspace(subject.folder) };
  const found: FoundProblem[] = [];
  for (const check of checks) found.push(...bounded(check, await check.run(workspace)));
  return found;
}

function bounded(check: IntegrityCheck, found: readonly FoundProblem[]): FoundProblem[] {
  const rest = found.length - MAX_FINDINGS_PER_CHECK;
  if (rest <= 0) return [...found];
  const more: FoundProblem = {
    checkId: `${check.id}.more`,
    severity: 'doubtful',
    path: '',
    message: `${rest} more ${rest === 1 ? 'finding' : 'findings'} of the check "${check.id}" are not listed.`,
    details: { unlisted: rest },
  };
  return [...found.slice(0, MAX_FINDINGS_PER_CHECK), more];
}
