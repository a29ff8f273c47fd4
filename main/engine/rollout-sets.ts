import { MassError } from '../common/base/errors.ts';
import { ROLLOUT_SEED_BASE } from '../common/domain/seeds.ts';
import { canonicalJson, sha256 } from '../node/hashing.ts';
import { newId } from '../node/ids.ts';
import { generationNumbered } from './cycle-generation.ts';
import type { Experiment } from './experiments.ts';
import type { SettledEpisode } from './store/repositories/episodes.ts';
import type { ComparisonRow, RolloutSetRow } from './store/repositories/rollouts.ts';
import type { Store } from './store/store.ts';

/** Runs of each task in a new set, unless asked otherwise. */
export const DEFAULT_ROLLOUTS = 10;

export interface RolloutWish {
  readonly generation: number;
  readonly set: string;
  /** runs of each task; absent: as the set, or sets of its name, have it */
  readonly count?: number | undefined;
  readonly split?: 'train' | 'test' | 'all' | undefined;
}

interface SetContent {
  readonly taskIds: readonly string[];
  readonly count: number;
  readonly seedBase: number;
}

/**
 * Finds the set of a generation and name, or creates it. A set never changes, and sets of one name hold the same tasks,
 * count and seed base, so that any two of them can be paired. Errors: `usage` (no such generation, no task), `conflict`
 * (the name is taken by other content).
 */
export function openRolloutSet(store: Store, experiment: Experiment, wish: RolloutWish): RolloutSetRow {
  const { experimentId } = experiment;
  const generation = generationNumbered(store, experiment, wish.generation);
  const find = () => namesakes().find((row) => row.generationId === generation.generationId);
  const namesakes = () => store.rollouts.sets(experimentId).filter((row) => row.name === wish.set);
  const [other] = namesakes();
  const content = contentOf(store, experiment, wish, other);
  if (other) refuseOther(other, content);
  const known = find();
  if (known) return known;
  store.append({
    type: 'rollout-set.created',
    setId: newId('rs'),
    experimentId,
    generationId: generation.generationId,
    generation: generation.number,
    name: wish.set,
    taskIds: [...content.taskIds],
    count: content.count,
    seedBase: content.seedBase,
  });
  return find() as RolloutSetRow;
}

/** What is asked for; what is left open is as the name's other sets have it. */
function contentOf(
  store: Store,
  { experimentId, name }: Experiment,
  { count, split }: RolloutWish,
  other: RolloutSetRow | undefined,
): SetContent {
  const taken = other && split === undefined ? taskIdsOf(other) : null;
  const taskIds =
    taken ??
    store.tasks
      .of(experimentId)
      .filter((row) => split === undefined || split === 'all' || row.split === split)
      .map((row) => row.taskId);
  if (taskIds.length === 0) throw new MassError('usage', `"${name}" has no ${split} task; choose another --split.`);
  return { taskIds, count: count ?? other?.count ?? DEFAULT_ROLLOUTS, seedBase: ROLLOUT_SEED_BASE };
}

function refuseOther(other: RolloutSetRow, content: SetContent): void {
  const differences = [
    ...(canonicalJson(taskIdsOf(other)) === canonicalJson(content.taskIds)
      ? []
      : [`tasks: ${taskIdsOf(other).join(', ')} -> ${content.taskIds.join(', ')}`]),
    ...(other.count === content.count ? [] : [`count: ${other.count} -> ${content.count}`]),
    ...(other.seedBase === content.seedBase ? [] : [`seed base: ${other.seedBase} -> ${content.seedBase}`]),
  ];
  if (differences.length === 0) return;
  throw new MassError(
    'conflict',
    `The set "${other.name}" exists with other content (${differences.join('; ')}); a set never changes, so name another with --set.`,
    { details: { differences } },
  );
}

export const taskIdsOf = (set: RolloutSetRow): string[] => JSON.parse(set.taskIdsJson) as string[];

/** Every run the set will have. */
export const plannedRuns = (set: RolloutSetRow): number => taskIdsOf(set).length * set.count;

/**
 * Closes a set whose runs are all settled. The hash is over what identifies each run's evidence, so that a comparison
 * can prove that it judged the very same runs. Closing twice changes nothing.
 */
export function completeRolloutSet(store: Store, setId: string): void {
  const set = store.rollouts.setById(setId);
  if (!set) throw new MassError('internal', `There is no rollout set ${setId}.`);
  if (set.membersHash !== null) return;
  const members = store.episodes.ofSet(setId);
  store.append({
    type: 'rollout-set.completed',
    setId,
    experimentId: set.experimentId,
    membersHash: membersHash(members),
    runs: members.length,
    completed: members.filter((member) => member.attempt?.outcome === 'completed').length,
  });
}

const membersHash = (members: readonly SettledEpisode[]): string =>
  sha256(
    canonicalJson(
      members.map(({ taskId, replicate, seed, attempt }) => ({
        taskId,
        replicate,
        seed,
        attemptId: attempt?.attemptId ?? null,
        outcome: attempt?.outcome ?? null,
        filesHash: attempt?.filesHash ?? null,
      })),
    ),
  );

export interface ComparisonWish {
  readonly first: number;
  readonly second: number;
  readonly set: string;
}

/**
 * Finds or opens the comparison of two generations' sets of one name, judged by L0. It is kept once a pair, the higher
 * generation first, whichever is asked first. Errors: `usage` (rollouts that are missing, with their command).
 */
export function openComparison(store: Store, experiment: Experiment, wish: ComparisonWish): ComparisonRow {
  if (wish.first === wish.second) throw new MassError('usage', 'Name two different generations to compare.');
  const [first, second] = [Math.max(wish.first, wish.second), Math.min(wish.first, wish.second)].map((number) =>
    requireComplete(store, experiment, { generation: number, set: wish.set }),
  ) as [RolloutSetRow, RolloutSetRow];
  const evaluator = generationNumbered(store, experiment, 0);
  const find = () =>
    store.rollouts
      .comparisons(experiment.experimentId)
      .find(
        (row) =>
          row.firstSetId === first.setId &&
          row.secondSetId === second.setId &&
          row.evaluatorGenerationId === evaluator.generationId,
      );
  const known = find();
  if (known) return known;
  store.append({
    type: 'comparison.opened',
    comparisonId: newId('cp'),
    experimentId: experiment.experimentId,
    setName: wish.set,
    firstSetId: first.setId,
    firstGeneration: first.generation,
    secondSetId: second.setId,
    secondGeneration: second.generation,
    evaluatorGenerationId: evaluator.generationId,
    evaluatorGeneration: evaluator.number,
    orders: 2,
    pairs: plannedRuns(first),
  });
  return find() as ComparisonRow;
}

function requireComplete(
  store: Store,
  experiment: Experiment,
  { generation, set }: { generation: number; set: string },
): RolloutSetRow {
  const { generationId } = generationNumbered(store, experiment, generation);
  const row = store.rollouts
    .sets(experiment.experimentId)
    .find((candidate) => candidate.generationId === generationId && candidate.name === set);
  if (!row?.membersHash)
    throw new MassError(
      'usage',
      `The rollouts of L${generation} in the set "${set}" are not ${row ? 'finished' : 'there'}; run: mass rollout ${experiment.name} --generation L${generation}${set === DEFAULT_SET ? '' : ` --set ${set}`}`,
    );
  requireUnchanged(store, row);
  return row;
}

/** The set that is meant when none is named. */
export const DEFAULT_SET = 'default';

/** Errors: `conflict` when the runs of a complete set are not those it was completed with. */
export function requireUnchanged(store: Store, set: RolloutSetRow): void {
  if (set.membersHash === membersHash(store.episodes.ofSet(set.setId))) return;
  throw new MassError(
    'conflict',
    `The runs of L${set.generation} in the set "${set.name}" are not those it was completed with; make a new set with: --set NAME`,
  );
}
