import { z } from 'zod';

/** ErrorData of base/errors.ts, as it crosses a process border. */
export const ErrorDataSchema = z.object({
  code: z.enum([
    'usage',
    'not_found',
    'conflict',
    'invalid_input',
    'prerequisite',
    'infrastructure',
    'cancelled',
    'gate',
    'internal',
  ]),
  message: z.string(),
  details: z.record(z.string(), z.unknown()).optional(),
  cause: z.string().optional(),
});
