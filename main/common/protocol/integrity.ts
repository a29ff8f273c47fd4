import { z } from 'zod';
import { FindingState, GateKind, GateState, Severity } from '../domain/integrity-events.ts';

/** Findings of the integrity checks, and gates, as clients ask for them and decide them. */
const name = z.string().min(1).max(100);
const note = z.string().max(2000).default('');

export const FindingSummary = z.object({
  findingId: z.string(),
  cycle: z.number().int(),
  taskId: z.string(),
  run: z.number().int().describe('replicate, 1-based'),
  episodeId: z.string(),
  attemptId: z.string(),
  /** "metrics.constant" */
  check: z.string(),
  severity: Severity,
  path: z.string(),
  message: z.string(),
  details: z.record(z.string(), z.unknown()),
  state: FindingState,
  note: z.string(),
  /** the task's selection is made: a decision no longer changes it */
  selected: z.boolean(),
});
export type FindingSummary = z.infer<typeof FindingSummary>;

export const GateSummary = z.object({
  gateId: z.string(),
  cycle: z.number().int(),
  kind: GateKind,
  message: z.string(),
  details: z.record(z.string(), z.unknown()),
  state: GateState,
  note: z.string(),
  openedAt: z.number(),
  decidedAt: z.number().nullable(),
});
export type GateSummary = z.infer<typeof GateSummary>;

/** How many findings stand in each state. */
export const FindingCounts = z.object({ open: z.number(), cleared: z.number(), upheld: z.number() });
export type FindingCounts = z.infer<typeof FindingCounts>;

export const integrityMethods = {
  /** undecided ones first */
  'findings.list': { params: z.object({ name }), result: z.array(FindingSummary) },
  /** clearing needs a note; what a selection already used stays as it was */
  'findings.decide': {
    params: z.object({ name, findings: z.array(z.string()).min(1), decision: z.enum(['cleared', 'upheld']), note }),
    result: z.array(FindingSummary),
  },
  'gates.list': { params: z.object({ name }), result: z.array(GateSummary) },
  /** `gate`: an id or a kind; without it there must be exactly one that can be decided so */
  'gates.decide': {
    params: z.object({ name, gate: z.string().optional(), decision: z.enum(['approved', 'rejected']), note }),
    result: GateSummary,
  },
} as const;
