import { z } from 'zod';
import { DomainEvent } from '../domain/events.ts';
import { Progress } from './engine.ts';

/**
 * Payload of an `events` push. `events` is absent when the subscription is of one experiment or the client reads
 * too slowly: then `events.since` gives what it lacks.
 */
export const EventsPush = z.object({
  lastSeq: z.number().int(),
  events: z.array(z.object({ seq: z.number().int(), at: z.number(), event: DomainEvent })).optional(),
});
export type EventsPush = z.infer<typeof EventsPush>;

/** Payload of a `progress` push: `id` is the request it belongs to. */
export const ProgressPush = z.object({ id: z.number().int(), progress: Progress });
export type ProgressPush = z.infer<typeof ProgressPush>;
