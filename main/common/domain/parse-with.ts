import type { z } from 'zod';
import { MassError } from '../base/errors.ts';

/**
 * Parses outside data against a schema. `what` names it in the message ("task.json of drug-safety").
 * @throws MassError invalid_input naming the first wrong field; details.issues lists all as "path: problem"
 */
export function parseWith<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.map(({ path, message }) => `${path.join('.') || 'top level'}: ${message}`);
  throw new MassError('invalid_input', `${what} has a wrong field (${issues[0]}); correct it and try again.`, {
    details: { issues },
    cause: result.error,
  });
}
