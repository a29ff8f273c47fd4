import { z } from 'zod';

const id = z.string().min(1);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();

/** Events of the render stage. */
export const WindowsRendered = z.object({
  type: z.literal('windows.rendered'),
  windowSetId: id,
  experimentId: id,
  cycle: count,
  /** relative to the data folder */
  folder: z.string(),
  /** the WindowManifest, as it stands in the folder */
  manifestHash: hash,
  modelSha256: hash,
  windows: count,
  tokens: count,
  labelledTokens: count,
});
