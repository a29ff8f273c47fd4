import { z } from 'zod';

/** Where the newest training of a cycle stands. */
export const TrainingProgress = z.object({
  trainingId: z.string(),
  state: z.enum(['running', 'finished', 'stopped', 'diverged', 'failed']),
  step: z.number().int(),
  steps: z.number().int(),
  loss: z.number().nullable().describe('nats per labelled token, of the newest step'),
  validations: z.array(z.object({ step: z.number().int(), loss: z.number().nullable() })),
  checkpoints: z.array(z.number().int()).describe('steps'),
  tokensPerSecond: z.number().nullable(),
  etaSeconds: z.number().nullable().describe('while it runs'),
  message: z.string(),
});
export type TrainingProgress = z.infer<typeof TrainingProgress>;
