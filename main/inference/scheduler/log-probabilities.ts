import { MassError } from '../../common/base/errors.ts';

/** Below it a float32 probability is 0, whose logarithm no file can hold. */
const smallest = 2 ** -149;

/** A distribution over ids 0 to n - 1 as natural logarithms, by id. Throws `internal` when ids are missing. */
export function logProbabilities(distribution: ReadonlyMap<number, number>): Float32Array {
  const row = new Float32Array(distribution.size).fill(Number.NaN);
  for (const [id, probability] of distribution) row[id] = Math.log(Math.max(probability, smallest));
  if (row.some(Number.isNaN))
    throw new MassError('internal', `A distribution over ${distribution.size} ids does not hold each of them once.`);
  return row;
}
