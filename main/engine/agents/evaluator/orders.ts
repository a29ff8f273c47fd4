import { MassError } from '../../../common/base/errors.ts';
import type { Side } from './verdict.ts';

/** Of a pair: in a search `first` is the challenger and `second` the incumbent; in a tournament as scheduled. */
export type PairMember = 'first' | 'second';
export type PairResult = PairMember | 'tie';

export interface Presentation {
  readonly shownAsA: PairMember;
  readonly verdict: Side;
  readonly valid: boolean;
}

export interface Resolution {
  readonly result: PairResult;
  /** all presentations favour the same member, or all say tie */
  readonly agreed: boolean;
  /** the winner changed with the order: the slot decided, not the work */
  readonly flipped: boolean;
  /** presentations won by the submission shown as A, for the first-slot rate */
  readonly firstSlotWins: number;
  readonly decided: number;
  readonly invalid: number;
}

const favours = ({ shownAsA, verdict, valid }: Presentation): PairResult => {
  if (!valid || verdict === 'tie') return 'tie';
  const other = shownAsA === 'first' ? 'second' : 'first';
  return verdict === 'A' ? shownAsA : other;
};

/**
 * The result of a judgment from its one presentation, or from two in both orders: then only a member that wins both
 * wins, and every disagreement is a tie. An invalid verdict counts as a tie. Errors: `internal` for other presentations.
 */
export function resolveOrders(presentations: readonly Presentation[]): Resolution {
  const orders = new Set(presentations.map(({ shownAsA }) => shownAsA));
  if (presentations.length === 0 || presentations.length > 2 || orders.size !== presentations.length)
    throw new MassError('internal', 'A judgment has one presentation, or two in different orders.');
  const results = presentations.map(favours);
  const [one = 'tie', other = one] = results;
  const usable = presentations.filter(({ valid, verdict }) => valid && verdict !== 'tie');
  return {
    result: one === other ? one : 'tie',
    agreed: one === other,
    flipped: one !== other && one !== 'tie' && other !== 'tie',
    firstSlotWins: usable.filter(({ verdict }) => verdict === 'A').length,
    decided: usable.length,
    invalid: presentations.filter(({ valid }) => !valid).length,
  };
}

/** Which members are shown as A: both, or with one order the given one (the incumbent in a search). */
export const presentationsOf = (orders: 1 | 2, single: PairMember): readonly PairMember[] =>
  orders === 2 ? ['first', 'second'] : [single];

export interface PlannedPresentation<M> {
  readonly match: M;
  readonly shownAsA: PairMember;
}

/**
 * All presentations of some matches in an order of execution in which those that show the same submission first stand
 * together, so that the cache holds task and submission A. Groups and members keep the order of the matches. Nothing
 * else may depend on this order: seeds and results belong to match and presentation.
 */
export function judgeOrderPlan<M extends { readonly first: string; readonly second: string }>(
  matches: readonly M[],
  options: { readonly orders: 1 | 2; readonly single?: PairMember },
): PlannedPresentation<M>[] {
  const groups = new Map<string, PlannedPresentation<M>[]>();
  for (const match of matches) {
    for (const shownAsA of presentationsOf(options.orders, options.single ?? 'first')) {
      const group = groups.get(match[shownAsA]) ?? [];
      group.push({ match, shownAsA });
      groups.set(match[shownAsA], group);
    }
  }
  return [...groups.values()].flat();
}
