import { z } from 'zod';

/** Integrity checks, their findings and the stops for a person; part of the event log (events.ts). */
const id = z.string().min(1);
const count = z.number().int().nonnegative();

/** serious: what the run claims cannot be true; doubtful: a person should look. Either keeps a run out of training. */
export const Severity = z.enum(['serious', 'doubtful']);
export type Severity = z.infer<typeof Severity>;
export const FindingState = z.enum(['open', 'cleared', 'upheld']);
export type FindingState = z.infer<typeof FindingState>;
export const GateKind = z.enum(['on-findings', 'short-pool', 'before-train', 'before-register']);
export type GateKind = z.infer<typeof GateKind>;
export const GateState = z.enum(['open', 'approved', 'rejected', 'lifted']);
export type GateState = z.infer<typeof GateState>;

/** The checks of this version looked at what the attempt left behind. */
export const EpisodeChecked = z.object({
  type: z.literal('episode.checked'),
  experimentId: id,
  episodeId: id,
  attemptId: id,
  checksVersion: z.number().int().positive(),
  findings: count,
});
export const FindingRecorded = z.object({
  type: z.literal('finding.recorded'),
  findingId: id,
  experimentId: id,
  episodeId: id,
  attemptId: id,
  checkId: id, // with attempt and path: one finding
  severity: Severity,
  /** relative to the workspace; '' when all of it is meant */
  path: z.string(),
  message: id,
  detailsJson: z.string(),
});
export const FindingDecided = z.object({
  type: z.literal('finding.decided'),
  findingId: id,
  experimentId: id,
  /** cleared: the run may be selected; upheld: it stays out */
  decision: z.enum(['cleared', 'upheld']),
  note: z.string(),
  by: z.literal('person'),
});
export const GateOpened = z.object({
  type: z.literal('gate.opened'),
  gateId: id,
  experimentId: id,
  cycle: count,
  kind: GateKind,
  runId: id,
  /** what an approval covers; a stop over something that is not among them is a new gate */
  about: z.array(z.string()),
  message: id,
  detailsJson: z.string(),
});
export const GateDecided = z.object({
  type: z.literal('gate.decided'),
  gateId: id,
  experimentId: id,
  /** lifted: what it stood for is no longer so */
  decision: z.enum(['approved', 'rejected', 'lifted']),
  note: z.string(),
  by: z.enum(['person', 'engine']),
});
