import { MassError } from '../base/errors.ts';

/**
 * Every seed of the method as one formula (arXiv 2610.12176 and the configuration of its public implementation).
 * `taskNumber` is the task's unique number, not its position; runs, matches and versions count from 0.
 */
interface TaskSeed {
  readonly seedBase: number;
  readonly taskNumber: number;
}

/** The base of a cycle (1-based) from its pair. Errors: `usage` for a cycle the configuration has no base for. */
export function seedBaseOfCycle(bases: readonly number[], cycle: number): number {
  const base = bases[cycle - 1];
  if (base !== undefined) return base;
  throw new MassError('usage', `There is no seed base for cycle ${cycle}; use a cycle from 1 to ${bases.length}.`);
}

/** Search episode of version v: seed_base + task + 1000 v (seed_base 450000, cycle 2: 1450000). */
export const searchEpisodeSeed = ({ seedBase, taskNumber, version }: TaskSeed & { version: number }): number =>
  seedBase + taskNumber + 1000 * version;

/** The reference run shares version 0's seed, so the workflow text is the only difference between the two. */
export const referenceEpisodeSeed = ({ seedBase, taskNumber }: TaskSeed): number =>
  searchEpisodeSeed({ seedBase, taskNumber, version: 0 });

/** Evaluator calls of a search: seed_base + task. */
export const searchJudgeSeed = ({ seedBase, taskNumber }: TaskSeed): number => seedBase + taskNumber;

/** Proposer calls of a search: seed_base + task. */
export const proposerSeed = ({ seedBase, taskNumber }: TaskSeed): number => seedBase + taskNumber;

/** Collection run i of a task: seed_base + 100 task + i (seed_base 710000, cycle 2: 1710000). */
export const collectSeed = ({ seedBase, taskNumber, run }: TaskSeed & { run: number }): number =>
  seedBase + 100 * taskNumber + run;

/** Pairs of a task's tournament: seed + task (seed 1234). */
export const scheduleSeed = ({ seed, taskNumber }: { seed: number; taskNumber: number }): number => seed + taskNumber;

/** Which run of a pair is shown as A: one more than the schedule's seed. */
export const orderSeed = (match: { seed: number; taskNumber: number }): number => scheduleSeed(match) + 1;

/** Judging of match i of a task: seed + 1000 task + i (seed 1234). */
export const matchSeed = (match: { seed: number; taskNumber: number; index: number }): number =>
  match.seed + 1000 * match.taskNumber + match.index;

/** Base of rollouts for reporting. */
export const ROLLOUT_SEED_BASE = 910_000;

/** Rollout i with the bare prompt, for reporting: 910000 + 100 task + i. */
export const rolloutSeed = (rollout: { taskNumber: number; run: number; seedBase?: number }): number =>
  (rollout.seedBase ?? ROLLOUT_SEED_BASE) + 100 * rollout.taskNumber + rollout.run;

/** Seeds of the three presentations an external judge sees of one pair. */
export const EXTERNAL_JUDGE_SEEDS = [42, 43, 44] as const;

/**
 * FNV-1a, 32 bits, over the UTF-16 code units of a text, low byte first. Not cryptographic.
 * Constants: offset basis 2166136261, prime 16777619 (Fowler, Noll, Vo).
 */
export function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    hash = Math.imul(hash ^ (unit & 0xff), 0x01000193);
    if (unit > 0xff) hash = Math.imul(hash ^ (unit >>> 8), 0x01000193);
  }
  return hash >>> 0;
}

export interface TurnSeed {
  readonly episodeSeed: number;
  /** name of the thread, unique within its episode and the same in every attempt */
  readonly thread: string;
  /** 0 is the thread's first model call */
  readonly turn: number;
  readonly policy: 'episode' | 'turn';
}

/**
 * Seed of one model call, 0 <= seed < 2^31 under `turn`. `episode` gives every turn the episode's seed, as the public
 * implementation does; `turn` (ours) derives one per call, so that equal prompts in different threads do not sample
 * alike. Either way a retry of an episode asks with the same seeds.
 */
export const turnSeed = ({ episodeSeed, thread, turn, policy }: TurnSeed): number =>
  policy === 'episode' ? episodeSeed : fnv1a(JSON.stringify([episodeSeed, thread, turn])) >>> 1;
