import { z } from 'zod';
import { ErrorDataSchema } from './error-data.ts';

/** The one envelope of every client connection. `id` pairs a reply with its request; a cancel names the request. */
export const ClientMessage = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('request'), id: z.number().int(), method: z.string(), params: z.unknown() }),
  z.object({ kind: z.literal('cancel'), id: z.number().int() }),
]);
export type ClientMessage = z.infer<typeof ClientMessage>;

export const ServerMessage = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('reply'), id: z.number().int(), result: z.unknown() }),
  z.object({ kind: z.literal('error'), id: z.number().int(), error: ErrorDataSchema }),
  /** not persisted and may be dropped; events carry what must not be */
  z.object({ kind: z.literal('push'), topic: z.enum(['events', 'progress']), payload: z.unknown() }),
]);
export type ServerMessage = z.infer<typeof ServerMessage>;
