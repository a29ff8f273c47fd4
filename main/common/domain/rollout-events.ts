import { z } from 'zod';

/** Rollouts for reporting and their comparison; part of the event log (events.ts). */
const id = z.string().min(1);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();

/**
 * A set of bare-prompt runs of one generation, fixed before the first of them: every task, `count` times. A set is found
 * by generation and name; sets of one name hold the same tasks, count and seed base, so that they can be paired.
 */
export const RolloutSetCreated = z.object({
  type: z.literal('rollout-set.created'),
  setId: id,
  experimentId: id,
  generationId: id,
  generation: count, // its number: 1 is L1
  name: id,
  /** in the order of the tasks' numbers */
  taskIds: z.array(id).min(1),
  /** runs of each task */
  count: z.number().int().positive(),
  seedBase: z.number().int(),
});
/** Every run of the set is settled; `membersHash` is over the attempts that settled them. */
export const RolloutSetCompleted = z.object({
  type: z.literal('rollout-set.completed'),
  setId: id,
  experimentId: id,
  membersHash: hash,
  runs: count,
  /** runs that ended as completed; the others were halted */
  completed: count,
});
/** Runs of two sets of one name, paired by task and replicate, judged by one generation. */
export const ComparisonOpened = z.object({
  type: z.literal('comparison.opened'),
  comparisonId: id,
  experimentId: id,
  setName: id, // of both sets
  firstSetId: id,
  firstGeneration: count,
  secondSetId: id,
  secondGeneration: count,
  evaluatorGenerationId: id,
  evaluatorGeneration: count,
  orders: z.literal(2),
  pairs: count,
});
export const ComparisonCompleted = z.object({
  type: z.literal('comparison.completed'),
  comparisonId: id,
  experimentId: id,
  resultHash: hash, // ComparisonResult, JSON
});
