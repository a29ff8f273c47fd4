import { join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { Parity } from '../../common/domain/parity.ts';
import type { ParityReport } from '../../common/domain/parity-report.ts';
import type { TrainerMachine, TrainerModel } from '../../common/protocol/trainer.ts';
import type { GenerationRow } from '../store/repositories/experiments.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';
import { type ParityPrompt, parityPrompts } from './parity-prompts.ts';
import { compareScores, type ScoreFile } from './score-comparison.ts';
import type { ScoreServed } from './served-scores.ts';

/** Prompts and scored positions of the gate. 128 positions see a wrong module of any layer; more only cost time and disk. */
const promptCount = 8;
const lastPositions = 16;
const longestPrompt = 1024;

export interface ParityOrder {
  readonly trainer: TrainerEngine;
  readonly scoreServed: ScoreServed;
  /** the window set the adapter was trained on */
  readonly windows: string;
  readonly contextSize: number;
  /** the trainer's parent: its base with every adapter before the new one merged in */
  readonly model: TrainerModel;
  /** PEFT folder of the new adapter */
  readonly adapter: string;
  readonly machine: TrainerMachine;
  readonly parent: GenerationRow;
  /** as it would be registered */
  readonly made: GenerationRow;
  /** a folder of the caller's own */
  readonly scratch: string;
  readonly doing: (what: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Scores the same prompts four ways (the trainer and as served, each without and with the new adapter) and compares them;
 * common/domain/parity.ts says what passes. Whoever calls holds the device. Errors: those of the trainer and of serving.
 */
export async function measureServedParity(order: ParityOrder): Promise<ParityReport> {
  const { signal, parent, made, doing } = order;
  const longest = Math.min(longestPrompt, order.contextSize - 1);
  const prompts = await parityPrompts(order.windows, { count: promptCount, lastPositions, longest });
  const number = (row: GenerationRow): string => `L${row.number}`;
  doing(`export: parity, ${number(parent)} in the trainer`);
  const trainerBase = await scoreTrainer(order, { prompts, adapter: null, name: 'trainer-base' });
  doing(`export: parity, ${number(made)} in the trainer`);
  const trainerAdapted = await scoreTrainer(order, { prompts, adapter: order.adapter, name: 'trainer-adapted' });
  doing(`export: parity, ${number(parent)} as served`);
  const servedBase = await scoreGeneration(order, { prompts, generation: parent, name: 'served-base' });
  doing(`export: parity, ${number(made)} as served`);
  const servedAdapted = await scoreGeneration(order, { prompts, generation: made, name: 'served-adapted' });
  doing('export: parity, comparing');
  const files = { trainerBase, trainerAdapted, servedBase, servedAdapted };
  return compareScores({ files, prompts, lastPositions }, signal);
}

interface Scoring {
  readonly prompts: readonly ParityPrompt[];
  readonly name: string;
}

const idsOf = (prompts: readonly ParityPrompt[]): number[][] => prompts.map(({ ids }) => [...ids]);

async function scoreTrainer(
  { trainer, model, machine, scratch, signal }: ParityOrder,
  { prompts, adapter, name }: Scoring & { readonly adapter: string | null },
): Promise<ScoreFile> {
  const path = join(scratch, name);
  const order = { model, adapter, prompts: idsOf(prompts), lastPositions, output: path, machine };
  const { vocabulary } = await trainer.score(order, signal);
  return { path, vocabulary };
}

async function scoreGeneration(
  { scoreServed, scratch, signal }: ParityOrder,
  { prompts, generation, name }: Scoring & { readonly generation: GenerationRow },
): Promise<ScoreFile> {
  const path = join(scratch, name);
  const request = { prompts: idsOf(prompts), lastPositions, output: path, signal };
  const { vocabulary } = await scoreServed(generation, request);
  return { path, vocabulary };
}

/** "divergence 0.00031 of at most 0.00146 nats, direction 0.998 of at least 0.900, strength 1.01 of 0.85 to 1.15" */
export function parityNumbers(parity: Parity): string {
  const { klAdapted, klLimit, cosine, cosineLimit, strength, strengthTolerance } = parity;
  const divergence = `divergence ${nats(klAdapted)} of at most ${nats(klLimit)} nats`;
  if (cosine === null || strength === null) return `${divergence}, and the trained adapter changes nothing`;
  const range = `${(1 - strengthTolerance).toFixed(2)} to ${(1 + strengthTolerance).toFixed(2)}`;
  return (
    `${divergence}, direction ${cosine.toFixed(3)} of at least ${cosineLimit.toFixed(3)}, ` +
    `strength ${strength.toFixed(2)} of ${range}`
  );
}

/** Why a generation is not registered. */
export const parityFailed = (generation: number, parity: Parity): MassError =>
  new MassError(
    'conflict',
    `The adapter as it is served does not do what the trained one does (${parityNumbers(parity)}), so L${generation} is not registered. ` +
      'Choose another checkpoint with: mass export NAME --checkpoint STEP; when every step fails, train.base is not the model that is served, or the conversion is wrong.',
    { details: { ...parity } },
  );

const nats = (value: number): string => value.toPrecision(3);
