import { MassError } from '../common/base/errors.ts';
import type { StageName } from '../common/domain/events.ts';
import { seedBaseOfCycle } from '../common/domain/seeds.ts';
import type { Experiment } from './experiments.ts';
import type { RunOrder } from './runner/runner.ts';
import { requireGeneration } from './serve-target.ts';
import type { GenerationRow } from './store/repositories/experiments.ts';
import type { Store } from './store/store.ts';

/** Errors: `usage` naming the generations there are and the command that makes the wanted one. */
export function generationNumbered(store: Store, experiment: Experiment, number: number): GenerationRow {
  const rows = store.experiments.generations(experiment.experimentId);
  const row = rows.find((generation) => generation.number === number);
  if (row) return row;
  const known = rows.map((generation) => `L${generation.number}`).join(', ');
  throw new MassError(
    'usage',
    `"${experiment.name}" has no L${number} (it has ${known}); make it with: mass run ${experiment.name} --cycle ${number}`,
  );
}

/** L(k-1) plays every part in cycle k. Errors: `usage`. */
export const generationOfCycle = (store: Store, experiment: Experiment, cycle: number): GenerationRow =>
  generationNumbered(store, experiment, cycle - 1);

/** The generation a run serves first: its cycle's; of a rollout the set's, of a comparison the evaluator. */
export function generationOfOrder(
  store: Store,
  experiment: Experiment,
  { cycle, subject }: Pick<RunOrder, 'cycle' | 'subject'>,
): GenerationRow {
  if (subject === undefined) return generationOfCycle(store, experiment, cycle);
  const generationId =
    store.rollouts.setById(subject)?.generationId ?? store.rollouts.comparisonById(subject)?.evaluatorGenerationId;
  if (generationId === undefined) throw new MassError('internal', `A run has the unknown subject ${subject}.`);
  return requireGeneration(store, experiment, generationId);
}

/**
 * Refuses, before anything runs, cycles that cannot: those without seeds, and those whose generation is neither there
 * nor made by the run itself. Errors: `usage`.
 */
export function requireCycles(
  store: Store,
  experiment: Experiment,
  { cycles, stages }: { readonly cycles: readonly number[]; readonly stages: readonly StageName[] },
): void {
  const { search, collect } = experiment.config;
  cycles.forEach((cycle, i) => {
    seedBaseOfCycle(search.seedBase, cycle);
    seedBaseOfCycle(collect.seedBase, cycle);
    const made = stages.includes('export') && cycles[i - 1] === cycle - 1;
    if (!made) generationOfCycle(store, experiment, cycle);
  });
}
