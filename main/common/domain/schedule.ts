import { MassError } from '../base/errors.ts';
import { seededRandom, shuffled } from '../base/seeded-random.ts';
import { matchSeed, orderSeed, scheduleSeed } from './seeds.ts';

export interface ScheduleInput {
  /** unique; their order does not matter, so that rows read in another order give the same tournament */
  readonly ids: readonly string[];
  /** opponents each candidate should meet, see `opponentsPossible` */
  readonly opponents: number;
  /** the configuration's schedule seed (1234 in the reference) */
  readonly seed: number;
  readonly taskNumber: number;
}

export interface ScheduledMatch {
  readonly index: number;
  /** shown as A */
  readonly first: string;
  readonly second: string;
  /** the judging seed */
  readonly seed: number;
}

type Edge = readonly [number, number];
type Neighbours = readonly Set<number>[];

/**
 * Opponents n candidates can really have: at most n - 1, and at least 2 when there are more than two candidates,
 * because one opponent each would leave the tournament in disconnected pairs.
 */
export const opponentsPossible = (n: number, opponents: number): number =>
  Math.min(Math.max(opponents, 2), Math.max(n - 1, 0));

/**
 * A seeded, connected, balanced tournament of unique pairs: every candidate meets d = `opponentsPossible` others,
 * floor(n d / 2) matches in all (18 candidates, 6 opponents: 54). When n d is odd one candidate, drawn by the seed,
 * meets d - 1. Who is shown as A is drawn match by match from a seed of its own. Fewer than two ids: no match.
 *
 * A circulant graph over the shuffled ids has the right degrees and is connected; random exchanges of two edges that
 * keep it simple and connected then remove its structure (the switch chain on connected graphs of given degrees,
 * R. Taylor, "Constrained switchings in graphs", 1981). Errors: `invalid_input` for repeated ids.
 */
export function scheduleMatches({ ids, opponents, seed, taskNumber }: ScheduleInput): ScheduledMatch[] {
  if (new Set(ids).size !== ids.length)
    throw new MassError('invalid_input', 'A tournament needs distinct candidates; the list names one twice.');
  const random = seededRandom(scheduleSeed({ seed, taskNumber }));
  const flip = seededRandom(orderSeed({ seed, taskNumber }));
  const seats = shuffled([...ids].sort(), random);
  const edges = circulant(seats.length, opponentsPossible(seats.length, opponents));
  exchangeEdges(edges, seats.length, random);
  return shuffled(edges, random).map(([a, b], index) => {
    const swap = flip() < 0.5;
    const first = seats[swap ? b : a] as string;
    const second = seats[swap ? a : b] as string;
    return { index, first, second, seed: matchSeed({ seed, taskNumber, index }) };
  });
}

/**
 * Offsets 1..floor(d/2) around a circle of n, and for odd d a half-turn for each of the first floor(n/2) seats: for odd
 * n that leaves the last seat with d - 1. Offset 1 alone connects everyone.
 */
function circulant(n: number, degree: number): Edge[] {
  const edges: Edge[] = [];
  for (let offset = 1; offset <= Math.floor(degree / 2); offset++)
    for (let i = 0; i < n; i++) edges.push([i, (i + offset) % n]);
  const half = Math.floor(n / 2);
  if (degree % 2 === 1) for (let i = 0; i < half; i++) edges.push([i, i + half]);
  return edges;
}

/** Exchanges partners between random pairs of edges, in place: (a b)(c d) -> (a d)(c b). Degrees never change. */
function exchangeEdges(edges: Edge[], n: number, random: () => number): void {
  const near: Set<number>[] = Array.from({ length: n }, () => new Set());
  for (const [a, b] of edges) link(near, a, b);
  const pick = (): number => Math.floor(random() * edges.length);
  for (let attempt = 0; attempt < 10 * edges.length; attempt++) {
    const i = pick();
    const j = pick();
    const [a, b] = edges[i] as Edge;
    const [x, y] = edges[j] as Edge;
    const [c, d] = random() < 0.5 ? [x, y] : [y, x];
    if (new Set([a, b, c, d]).size < 4 || near[a]?.has(d) || near[c]?.has(b)) continue;
    unlink(near, a, b);
    unlink(near, c, d);
    link(near, a, d);
    link(near, c, b);
    if (isConnected(near)) {
      edges[i] = [a, d];
      edges[j] = [c, b];
      continue;
    }
    unlink(near, a, d);
    unlink(near, c, b);
    link(near, a, b);
    link(near, c, d);
  }
}

function link(near: Neighbours, a: number, b: number): void {
  near[a]?.add(b);
  near[b]?.add(a);
}

function unlink(near: Neighbours, a: number, b: number): void {
  near[a]?.delete(b);
  near[b]?.delete(a);
}

function isConnected(near: Neighbours): boolean {
  const seen = new Set([0]);
  for (const seat of seen) for (const other of near[seat] ?? []) seen.add(other); // a Set iterates what is added to it
  return seen.size === near.length;
}
