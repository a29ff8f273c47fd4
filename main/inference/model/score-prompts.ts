import { open, rm } from 'node:fs/promises';
import { MassError } from '../../common/base/errors.ts';
import type { ServedModel } from './served-model.ts';

export interface ScoreFileOrder {
  readonly prompts: readonly (readonly number[])[];
  readonly lastPositions: number;
  /** a new file; the caller owns it, and what is left of it when this fails is removed */
  readonly output: string;
}

/**
 * Writes the rows of `ServedModel.scoreNext` for every prompt, float32 little-endian; returns the length of a row.
 * Errors: `conflict` without a model, while it answers completions, or for an existing file; those of scoring.
 */
export async function scorePrompts(model: ServedModel | null, order: ScoreFileOrder): Promise<number> {
  if (model === null) throw new MassError('conflict', 'No model is loaded to score prompts with.');
  const { running, queued } = model.metrics();
  if (running + queued > 0)
    throw new MassError('conflict', 'Prompts are scored by a model that does nothing else; wait for its completions.');
  const file = await open(order.output, 'wx').catch((cause: unknown) => {
    throw new MassError('conflict', `${order.output} cannot be written anew; remove it or choose another.`, { cause });
  });
  let vocabulary = 0;
  try {
    for (const prompt of order.prompts) {
      for (const row of await model.scoreNext(prompt, order.lastPositions)) {
        vocabulary = row.length;
        await file.writeFile(littleEndian(row));
      }
    }
    await file.sync();
    await file.close();
  } catch (error) {
    await file.close();
    await rm(order.output, { force: true });
    throw error;
  }
  return vocabulary;
}

function littleEndian(row: Float32Array): Uint8Array {
  const bytes = Buffer.alloc(row.length * 4);
  for (const [i, value] of row.entries()) bytes.writeFloatLE(value, i * 4);
  return bytes;
}
