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
