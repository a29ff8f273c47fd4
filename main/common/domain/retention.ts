import { MassError } from '../base/errors.ts';
import { elitePolicy } from './retention-elite.ts';
import { fixedReferencePolicy } from './retention-fixed-reference.ts';
import type { RetentionPolicy } from './retention-history.ts';

export type {
  JudgmentState,
  RetentionPolicy,
  SearchAction,
  SearchHistory,
  Standing,
  Verdict,
  VersionState,
} from './retention-history.ts';

const policies: Record<RetentionPolicy['id'], RetentionPolicy> = {
  'fixed-reference': fixedReferencePolicy,
  elite: elitePolicy,
};

/** The policy a configuration names. Errors: `invalid_input` for a name that is no policy. */
export function retentionPolicy(id: string): RetentionPolicy {
  if (id === 'fixed-reference' || id === 'elite') return policies[id];
  throw new MassError(
    'invalid_input',
    `There is no retention policy "${id}"; use "fixed-reference" or "elite" in search.policy.`,
  );
}
