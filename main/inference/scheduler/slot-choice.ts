/** A free sequence as the choice sees it. */
export interface SlotView {
  /** conversation that used it last */
  readonly affinity: string | null;
  /** tokens its state holds */
  readonly held: number;
  /** leading tokens of the request that need no evaluation there */
  readonly reusable: number;
  /** assignments made anywhere since it was last used; 0 for the one used last */
  readonly age: number;
}

export interface SlotRequest {
  readonly affinity: string | undefined;
  /** all sequences, busy ones too: the unit of age */
  readonly sequences: number;
}

/**
 * Picks the sequence that costs least now and later: tokens saved for this request count fully, tokens that another
 * conversation loses count half, and half again for each `sequences` assignments it has been idle. So the longest
 * common prefix wins, a short shared prefix does not displace a long live conversation while an idle sequence is
 * there, and among equals the conversation's own, then the least recently used one goes.
 *
 * Returns an index into `slots`, -1 when there are none.
 */
export function chooseSlot(slots: readonly SlotView[], request: SlotRequest): number {
  let best = -1;
  for (const [i, slot] of slots.entries()) {
    const rival = slots[best];
    if (rival === undefined || compare(slot, rival, request) < 0) best = i;
  }
  return best;
}

const owns = (slot: SlotView, request: SlotRequest): boolean =>
  request.affinity !== undefined && slot.affinity === request.affinity;

function cost(slot: SlotView, request: SlotRequest): number {
  const lost = owns(slot, request) ? 0 : slot.held - slot.reusable;
  return lost * 0.5 ** (1 + slot.age / request.sequences) - slot.reusable;
}

function compare(a: SlotView, b: SlotView, request: SlotRequest): number {
  const difference = cost(a, request) - cost(b, request);
  if (difference !== 0) return difference;
  const ownership = Number(owns(b, request)) - Number(owns(a, request));
  return ownership !== 0 ? ownership : b.age - a.age;
}

/** Length of the longest common prefix. */
export function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const end = Math.min(a.length, b.length);
  let i = 0;
  while (i < end && a[i] === b[i]) i++;
  return i;
}
