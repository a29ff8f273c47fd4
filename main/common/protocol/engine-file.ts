import { z } from 'zod';

/** engine.json in the data folder (mode 0600): how a client finds the engine and proves it may use it. */
export const EngineFile = z.object({
  pid: z.number().int().positive(),
  /** of process-identity.ts: a reused pid is not the engine */
  identity: z.string(),
  port: z.number().int().min(1).max(65_535),
  token: z.string().min(32),
  version: z.string(),
  startedAt: z.number(),
});
export type EngineFile = z.infer<typeof EngineFile>;

export const engineFileName = 'engine.json';
/** ErrorData of the last start that failed. */
export const startErrorFileName = 'start-error.json';
