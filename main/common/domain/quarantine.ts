import type { Ranked } from './bradley-terry.ts';
import type { FindingState } from './integrity-events.ts';

/** free: nothing stands against the run; waiting: a finding is undecided; upheld: a person confirmed one. */
export type RunStanding = 'free' | 'waiting' | 'upheld';

/** One upheld finding is enough to keep a run out; cleared ones count as none. */
export function standingOf(states: readonly FindingState[]): RunStanding {
  if (states.includes('upheld')) return 'upheld';
  return states.includes('open') ? 'waiting' : 'free';
}

export interface Pool {
  /** what the cut is made from, in rank order */
  readonly eligible: readonly Ranked[];
  /** in rank order */
  readonly leftOut: readonly { readonly id: string; readonly rank: number; readonly standing: 'waiting' | 'upheld' }[];
  /** runs that the cut lacks; 0 when there are enough */
  readonly missing: number;
  /** waiting runs that would be kept if a person cleared them: the decision matters to the cut */
  readonly deciding: readonly string[];
}

/**
 * Takes runs with findings out of a ranking before the cut, so that the next ranks move up. They were judged like any
 * other: their matches count in everybody's ratings. `needed` is train + validate.
 */
export function quarantine(options: {
  readonly ranking: readonly Ranked[];
  readonly needed: number;
  readonly standing: (id: string) => RunStanding;
}): Pool {
  const { ranking, needed, standing } = options;
  const eligible = ranking.filter(({ id }) => standing(id) === 'free');
  const leftOut = ranking.flatMap(({ id, rank }) => {
    const is = standing(id);
    return is === 'free' ? [] : [{ id, rank, standing: is }];
  });
  const reachable = ranking.filter(({ id }) => standing(id) !== 'upheld').slice(0, needed);
  return {
    eligible,
    leftOut,
    missing: Math.max(0, needed - eligible.length),
    deciding: reachable.filter(({ id }) => standing(id) === 'waiting').map(({ id }) => id),
  };
}
