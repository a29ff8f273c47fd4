/** Token ids of a conversation. */
export type Ids = Uint32Array;

/** A run of tokens of one origin. */
export interface Part {
  readonly ids: Ids;
  /** the completion whose sampled ids these are; null for tokens the model did not sample here */
  readonly completionId: string | null;
}

/** One turn, kept whole where it serves as context: role header, what was said, the turn's end. */
export interface Unit {
  readonly parts: readonly Part[];
}

/** Where the sampled ids of a completion lie in a conversation, `start` (inclusive) to `end` (exclusive). */
export interface SampledRange {
  readonly completionId: string;
  readonly start: number;
  readonly end: number;
}

export interface CutInput {
  readonly ids: Ids;
  /** where the header (system + first user message) ends */
  readonly headerEnd: number;
  /** where turns begin, ascending, within [headerEnd, ids.length] */
  readonly starts: readonly number[];
  /** ascending, without overlap, after the header */
  readonly sampled: readonly SampledRange[];
}

export interface CutUnit extends Unit {
  readonly start: number;
  readonly end: number;
}

/**
 * Cuts a conversation after its header into turns, and each turn into what was sampled and what was not. A beginning that
 * falls inside sampled ids (the model wrote a turn's marker itself) is none: sampled ids are never cut.
 */
export function cutUnits({ ids, headerEnd, starts, sampled }: CutInput): CutUnit[] {
  const cuts = [headerEnd, ...starts, ids.length].filter(
    (at, i, all) =>
      at >= headerEnd && at !== all[i - 1] && !sampled.some((range) => range.start < at && at < range.end),
  );
  return cuts.slice(0, -1).flatMap((start, i) => {
    const end = cuts[i + 1] ?? start;
    return end > start ? [{ start, end, parts: cutParts(ids, sampled, { start, end }) }] : [];
  });
}

function cutParts(ids: Ids, sampled: readonly SampledRange[], { start, end }: { start: number; end: number }): Part[] {
  const parts: Part[] = [];
  let at = start;
  const take = (to: number, completionId: string | null): void => {
    if (to > at) parts.push({ ids: ids.subarray(at, to), completionId });
    at = Math.max(at, to);
  };
  for (const range of sampled) {
    if (range.end <= start || range.start >= end) continue;
    take(range.start, null);
    take(range.end, range.completionId);
  }
  take(end, null);
  return parts;
}

export const unitLength = (unit: Unit): number => unit.parts.reduce((sum, part) => sum + part.ids.length, 0);
