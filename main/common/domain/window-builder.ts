import { MassError } from '../base/errors.ts';
import type { WindowBlock } from './window-set.ts';
import { type Ids, type Part, type Unit, unitLength } from './window-units.ts';

/** A header that fills more of a window than this leaves no room for what is trained. */
const LARGEST_HEADER_SHARE = 0.9;

/**
 * A stretch of a conversation in which every turn was generated with the same beginning before it: from a user message to
 * the next one, or to where a later prompt departs from what was generated (a fork, a retry).
 */
export interface Segment {
  /** system + first user message */
  readonly header: Ids;
  /** every turn after the header, in order, as this segment's prompts have them; a completion occurs once at most */
  readonly units: readonly Unit[];
  /** the user message that the segment answers; null when it is the header's */
  readonly query: number | null;
  /** the first unit that is the segment's own; what lies before is earlier context */
  readonly fresh: number;
}

export interface WindowLimits {
  readonly windowTokens: number;
  readonly overlapTokens: number;
}

export interface WindowDraft {
  readonly ids: Ids;
  readonly blocks: readonly WindowBlock[];
  readonly labelledTokens: number;
  /** tokens of the segment's own context before the first trained block that had to be left out to make room for it */
  readonly leftOut: number;
}

export interface BuildOptions {
  readonly segment: Segment;
  readonly limits: WindowLimits;
  /** Completions that are trained already; those of the windows are added. Who owns a completion trains it, once. */
  readonly trained: Set<string>;
  /** names the conversation in errors: "thread t1 of episode e1" */
  readonly where: string;
}

/**
 * Windows of one segment, in order: header, earlier context (masked, at most `overlapTokens`, whole turns, newest first,
 * less where the room is needed), then turns one after another up to `windowTokens`. A window ends at its last trained
 * token. The query is always in it. Sampled ids of a completion nobody owned yet carry loss; everything else is masked.
 *
 * Masked turns right before a trained one are left out, oldest first, when the trained one would not fit beside them: they
 * count as earlier context then, and are reported in `leftOut`.
 *
 * Errors: `invalid_input` with details.reason "header_too_long" or "block_too_long".
 */
export function* buildWindows(options: BuildOptions): Generator<WindowDraft> {
  const { segment, limits, trained, where } = options;
  const { units } = segment;
  const isLoss = (part: Part): boolean =>
    part.completionId !== null && part.ids.length > 0 && !trained.has(part.completionId);
  const nextLoss = (from: number): number => units.findIndex((unit, i) => i >= from && unit.parts.some(isLoss));
  let first = nextLoss(0);
  if (first < 0) return;
  checkHeader(segment, limits, where);
  let from = Math.min(segment.fresh, first);
  while (first >= 0) {
    const plan = placeRun({ segment, limits, where, from, first, isLoss });
    const window = draft(segment, plan, isLoss);
    for (const unit of units.slice(plan.start, plan.end + 1))
      for (const part of unit.parts) if (part.completionId !== null) trained.add(part.completionId);
    yield window;
    from = plan.end + 1;
    first = nextLoss(from);
  }
}

function checkHeader({ header }: Segment, { windowTokens }: WindowLimits, where: string): void {
  if (header.length <= LARGEST_HEADER_SHARE * windowTokens) return;
  throw new MassError(
    'invalid_input',
    `The system prompt and first message of ${where} take ${header.length} of the window's ${windowTokens} tokens, more than 90%; use a larger render.windowTokens.`,
    { details: { reason: 'header_too_long', tokens: header.length, windowTokens } },
  );
}

interface RunInput {
  readonly segment: Segment;
  readonly limits: WindowLimits;
  readonly where: string;
  /** first unit not in an earlier window */
  readonly from: number;
  /** first unit to train */
  readonly first: number;
  readonly isLoss: (part: Part) => boolean;
}

/** Units of a window: [overlap, start) masked, [start, end] the run; the query before them when they do not hold it. */
interface RunPlan {
  readonly pinned: number | null;
  readonly overlap: number;
  readonly start: number;
  readonly end: number;
  readonly leftOut: number;
}

function placeRun(input: RunInput): RunPlan {
  const { segment, limits, from, first, isLoss } = input;
  const { units, header } = segment;
  const query = segment.query ?? -1;
  const length = (i: number): number => unitLength(units[i] ?? { parts: [] });
  const queryBefore = (i: number): number => (query >= 0 && query < i ? length(query) : 0);
  let start = from;
  let run = sum(units.slice(from, first)) + lossEnd(units[first], isLoss);
  let leftOut = 0;
  const used = (): number => header.length + queryBefore(start) + run;
  while (start < first && used() > limits.windowTokens) {
    run -= length(start);
    leftOut += start === query ? 0 : length(start); // the query stays in the window in any case
    start++;
  }
  if (used() > limits.windowTokens) throw tooLong(input, used());

  let room = Math.min(limits.overlapTokens, limits.windowTokens - used());
  let overlap = start;
  while (overlap > 0) {
    const cost = overlap - 1 === query ? 0 : length(overlap - 1);
    if (cost > room) break;
    room -= cost;
    overlap--;
  }
  let total = used() + sum(units.slice(overlap, start)) - (overlap <= query && query < start ? length(query) : 0);

  let end = first;
  total += length(first) - lossEnd(units[first], isLoss);
  for (let i = first + 1; i < units.length; i++) {
    if (units[i]?.parts.some(isLoss) && total + lossEnd(units[i], isLoss) <= limits.windowTokens) end = i;
    total += length(i);
    if (total > limits.windowTokens) break;
  }
  return { pinned: query >= 0 && query < overlap ? query : null, overlap, start, end, leftOut };
}

const sum = (units: readonly Unit[]): number => units.reduce((tokens, unit) => tokens + unitLength(unit), 0);

/** Tokens of a unit up to its last trained one. */
function lossEnd(unit: Unit | undefined, isLoss: (part: Part) => boolean): number {
  const parts = unit?.parts ?? [];
  return sum([{ parts: parts.slice(0, parts.findLastIndex(isLoss) + 1) }]);
}

function tooLong({ where, limits, segment, first, isLoss }: RunInput, tokens: number): MassError {
  const completionId = segment.units[first]?.parts.find(isLoss)?.completionId ?? '';
  return new MassError(
    'invalid_input',
    `An answer of ${where} (completion ${completionId}) fits no window: with its header it takes ${tokens} tokens and render.windowTokens is ${limits.windowTokens}; use a larger window or a smaller executor.turnTokens.`,
    { details: { reason: 'block_too_long', completionId, tokens, windowTokens: limits.windowTokens } },
  );
}

function draft({ header, units }: Segment, plan: RunPlan, isLoss: (part: Part) => boolean): WindowDraft {
  const writer = new DraftWriter();
  writer.add(header, 'header', null);
  if (plan.pinned !== null)
    for (const part of units[plan.pinned]?.parts ?? []) writer.add(part.ids, 'overlap', part.completionId);
  for (const unit of units.slice(plan.overlap, plan.start))
    for (const part of unit.parts) writer.add(part.ids, 'overlap', part.completionId);
  for (let i = plan.start; i <= plan.end; i++) {
    const parts = units[i]?.parts ?? [];
    const shown = i === plan.end ? parts.slice(0, parts.findLastIndex(isLoss) + 1) : parts;
    for (const part of shown) writer.add(part.ids, isLoss(part) ? 'loss' : 'context', part.completionId);
  }
  return writer.finish(plan.leftOut);
}

class DraftWriter {
  readonly #pieces: Ids[] = [];
  readonly #blocks: WindowBlock[] = [];
  #length = 0;
  #labelled = 0;

  add(ids: Ids, part: WindowBlock['part'], completionId: string | null): void {
    if (ids.length === 0) return;
    this.#pieces.push(ids);
    this.#blocks.push({ start: this.#length, end: this.#length + ids.length, part, completionId });
    this.#length += ids.length;
    if (part === 'loss') this.#labelled += ids.length;
  }

  finish(leftOut: number): WindowDraft {
    const ids = new Uint32Array(this.#length);
    this.#pieces.reduce((at, piece) => {
      ids.set(piece, at);
      return at + piece.length;
    }, 0);
    return { ids, blocks: this.#blocks, labelledTokens: this.#labelled, leftOut };
  }
}
