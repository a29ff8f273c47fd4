import type { z } from 'zod';
import { MassError } from '../base/errors.ts';

const shownIssues = 3;

/**
 * Parses outside data against a schema. `what` names it in the message ("task.json of drug-safety").
 * @throws MassError invalid_input naming the first wrong fields; details.issues lists all as "path: problem"
 */
export function parseWith<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.map(({ path, message }) => `${path.join('.') || 'top level'}: ${message}`);
  const fields = issues.length === 1 ? 'a wrong field' : `${issues.length} wrong fields`;
  const shown = issues.slice(0, shownIssues).map((issue) => issue.replace(/\.$/, ''));
  const more = issues.length > shownIssues ? '; and more' : '';
  // No cause: the parser's own error says the same again, as a page of JSON.
  throw new MassError('invalid_input', `${what} has ${fields} (${shown.join('; ')}${more}); correct and try again.`, {
    details: { issues },
  });
}
