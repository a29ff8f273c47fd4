import { MassError } from './errors.ts';

/** 1-based line and column of a character offset; a carriage return does not count as a line of its own. */
export function positionInText(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, Math.max(0, offset));
  const line = before.split('\n').length;
  return { line, column: before.length - before.lastIndexOf('\n') };
}

/**
 * Parses JSON that a person may have written. `what` names it in the message ("task.json of drug-safety").
 * @throws MassError invalid_input with the line and column of the mistake in the message and in details
 */
export function parseJson(text: string, what: string): unknown {
  const plain = text.startsWith('\uFEFF') ? text.slice(1) : text;
  try {
    return JSON.parse(plain);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    // V8 gives the offset of a wrong token; a text that just ends has none, and its end is the place.
    const offset = /at position (\d+)/.exec(reason)?.[1];
    const { line, column } = positionInText(plain, offset === undefined ? plain.length : Number(offset));
    const problem = plain.trim() === '' ? 'is empty' : `is not JSON at line ${line}, column ${column}`;
    throw new MassError('invalid_input', `${what} ${problem}; correct it there and try again.`, {
      details: { line, column },
      cause,
    });
  }
}

export type LooseJson =
  | { readonly value: unknown /** bare NaN and Infinity, which the standard forbids */; readonly bareNumbers: number }
  | { readonly problem: 'not JSON' | 'nested too deeply' };

/**
 * Parses JSON as Python writes it: a bare NaN, Infinity or -Infinity becomes the string of that name. For text nobody
 * vouches for: linear in time, nesting bounded by `maxDepth`, and a problem is a value, not an error.
 */
export function parseLooseJson(text: string, maxDepth = 256): LooseJson {
  const plain = text.startsWith('\uFEFF') ? text.slice(1) : text;
  const parts: string[] = [];
  let copied = 0;
  let depth = 0;
  let bareNumbers = 0;
  for (let i = 0; i < plain.length; i++) {
    const character = plain[i];
    if (character === '"') i = endOfString(plain, i);
    else if (character === '[' || character === '{') {
      if (++depth > maxDepth) return { problem: 'nested too deeply' };
    } else if (character === ']' || character === '}') depth--;
    else if (character === 'N' || character === 'I') {
      const bare = bareNumberAt(plain, i);
      if (bare === null) return { problem: 'not JSON' };
      parts.push(plain.slice(copied, bare.start), `"${plain.slice(bare.start, bare.end)}"`);
      copied = bare.end;
      i = copied - 1;
      bareNumbers++;
    }
  }
  try {
    return { value: JSON.parse(parts.join('') + plain.slice(copied)), bareNumbers };
  } catch {
    return { problem: 'not JSON' };
  }
}

function bareNumberAt(text: string, at: number): { start: number; end: number } | null {
  const word = text[at] === 'N' ? 'NaN' : 'Infinity';
  if (!text.startsWith(word, at)) return null;
  return { start: word === 'Infinity' && text[at - 1] === '-' ? at - 1 : at, end: at + word.length };
}

/** Index of the quote that closes the string opened at `start`, or of the last character. */
function endOfString(text: string, start: number): number {
  let i = start + 1;
  while (i < text.length && text[i] !== '"') i += text[i] === '\\' ? 2 : 1;
  return i;
}
