import { z } from 'zod';
import { ComparisonResult, SideFigures } from '../domain/comparison.ts';
import { Split } from '../domain/events.ts';

/** Rollouts and their comparison, as clients ask for them. Generations are numbers: 1 is L1. */
const name = z.string().min(1).max(100);
const set = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$/,
    'A set is named by up to 60 letters, digits, dots, dashes and underscores.',
  )
  .default('default');
const generation = z.number().int().min(0);

/** What the runs of one set did so far. */
export const RolloutReport = z.object({
  setId: z.string(),
  set: z.string(),
  generation,
  /** runs of each task */
  count: z.number().int(),
  seedBase: z.number().int(),
  planned: z.number().int(),
  settled: z.number().int(),
  complete: z.boolean(),
  tasks: z.array(SideFigures.extend({ taskId: z.string(), split: Split })),
  splits: z.array(SideFigures.extend({ split: Split })),
  all: SideFigures,
});
export type RolloutReport = z.infer<typeof RolloutReport>;

/** A comparison as it was asked for: `first` against `second`. */
export const ComparisonReport = z.object({
  comparisonId: z.string(),
  set: z.string(),
  first: generation,
  second: generation,
  evaluator: generation,
  /** runs of each task */
  count: z.number().int(),
  seedBase: z.number().int(),
  pairs: z.number().int(),
  judged: z.number().int(),
  /** null until every pair is judged */
  result: ComparisonResult.nullable(),
});
export type ComparisonReport = z.infer<typeof ComparisonReport>;

export const EvaluationList = z.object({
  sets: z.array(RolloutReport.pick({ set: true, generation: true, count: true, planned: true, settled: true })),
  comparisons: z.array(
    ComparisonReport.pick({ set: true, first: true, second: true, evaluator: true, pairs: true, judged: true }),
  ),
});
export type EvaluationList = z.infer<typeof EvaluationList>;

const started = z.object({ runId: z.string().nullable().describe('null: nothing is left to run') });
const pair = z.object({ name, first: generation, second: generation, set });

export const evaluationMethods = {
  /** creates the set, or finds it, and runs what it lacks; the same name with other content is a `conflict` */
  'rollout.start': {
    params: z.object({
      name,
      generation,
      set,
      /** runs of each task; more than 100 would share seeds with the next task number */
      count: z.number().int().min(1).max(100).optional(),
      split: z.enum(['train', 'test', 'all']).optional(),
    }),
    result: started,
  },
  'rollout.show': { params: z.object({ name, generation, set }), result: RolloutReport },
  /** judges what is not judged yet of two complete sets of one name */
  'compare.start': { params: pair, result: started },
  'compare.show': { params: pair, result: ComparisonReport },
  'evaluation.list': { params: z.object({ name }), result: EvaluationList },
} as const;
