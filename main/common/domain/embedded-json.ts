export interface FoundJson {
  readonly value: unknown;
  /** text around the JSON, without a code fence that only wraps it */
  readonly before: string;
  readonly after: string;
}

/** How many opening brackets are tried: bounds the work on hostile text to this many passes over it. */
const MAX_STARTS = 64;

/**
 * The first JSON object or list inside a text that is `wanted`, or else the first one that parses; null when there is
 * none. Models wrap JSON in code fences and remarks; this reads through them. Never throws.
 */
export function findJson(text: string, wanted: (value: unknown) => boolean): FoundJson | null {
  const opening = /[[{]/g;
  let fallback: FoundJson | null = null;
  for (let tries = 0; tries < MAX_STARTS; tries++) {
    const start = opening.exec(text)?.index;
    if (start === undefined) break;
    const end = closingEnd(text, start);
    const parsed = end === null ? undefined : parsedOrUndefined(text.slice(start, end));
    if (end === null || parsed === undefined) continue;
    const found = { value: parsed, ...withoutFence(text.slice(0, start), text.slice(end)) };
    if (wanted(parsed)) return found;
    fallback ??= found;
    opening.lastIndex = end;
  }
  return fallback;
}

/** Index after the bracket that closes the one at `start`, or null. Brackets inside strings do not count. */
function closingEnd(text: string, start: number): number | null {
  let depth = 0;
  let inString = false;
  for (let i = start; i < text.length; i++) {
    const c = text[i];
    if (inString) {
      if (c === '\\') i++;
      else if (c === '"') inString = false;
    } else if (c === '"') inString = true;
    else if (c === '{' || c === '[') depth++;
    else if ((c === '}' || c === ']') && --depth === 0) return i + 1;
  }
  return null;
}

function parsedOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined; // outside text: not JSON is an answer here, not a failure
  }
}

/** Fences are looked for next to the JSON only: no pattern runs over the whole of a hostile text. */
function withoutFence(before: string, after: string): { before: string; after: string } {
  const head = before.trimEnd();
  const tail = after.trimStart();
  const opened = /```[a-z]{0,16}$/i.exec(head.slice(-19));
  if (!opened || !tail.startsWith('```')) return { before, after };
  return { before: head.slice(0, head.length - opened[0].length), after: tail.slice(3) };
}

/** JSON text of a parsed value; a fixed note where nesting is too deep to be written. Never throws. */
export function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value) ?? '';
  } catch {
    return '"(nested too deeply)"'; // RangeError: the value came from outside text, and its bytes are kept elsewhere
  }
}
