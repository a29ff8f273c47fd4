import type { JsonSchema } from '../model/served-model.ts';

/** Integers this small a range are listed one by one. */
const LISTED = 2000;

/**
 * GBNF for the integers a schema allows: null when it does not bound them, an expression when the bounds can be
 * enforced, else the keyword that cannot. Bounds at or beyond the safe integers (what zod writes for `int()`) bound nothing.
 */
export function integerRange(node: JsonSchema): string | null | { keyword: string } {
  const low = lowest(node);
  const high = highest(node);
  if (low === null && high === null) return null;
  if (low !== null && high !== null) {
    if (high < low) return { keyword: 'maximum' };
    if (high - low < LISTED) return listed(low, high);
    return { keyword: 'maximum' };
  }
  if (low === 0) return '"0" | [1-9] [0-9]{0,15}';
  if (low === 1) return '[1-9] [0-9]{0,15}';
  return { keyword: low === null ? 'maximum' : 'minimum' };
}

function lowest(node: JsonSchema): number | null {
  const bounds = [
    typeof node.minimum === 'number' ? Math.ceil(node.minimum) : null,
    typeof node.exclusiveMinimum === 'number' ? Math.floor(node.exclusiveMinimum) + 1 : null,
  ].filter((bound) => bound !== null && bound > Number.MIN_SAFE_INTEGER) as number[];
  return bounds.length === 0 ? null : Math.max(...bounds);
}

function highest(node: JsonSchema): number | null {
  const bounds = [
    typeof node.maximum === 'number' ? Math.floor(node.maximum) : null,
    typeof node.exclusiveMaximum === 'number' ? Math.ceil(node.exclusiveMaximum) - 1 : null,
  ].filter((bound) => bound !== null && bound < Number.MAX_SAFE_INTEGER) as number[];
  return bounds.length === 0 ? null : Math.min(...bounds);
}

function listed(low: number, high: number): string {
  const values: string[] = [];
  for (let value = low; value <= high; value++) values.push(`"${value}"`);
  return values.join(' | ');
}
