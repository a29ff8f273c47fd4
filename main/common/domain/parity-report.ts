import { z } from 'zod';
import type { ScoredRows } from './parity.ts';

const number = z.number();
const count = z.number().int().nonnegative();

/** What the parity gate measured, stored with its event. */
export const ParityReport = z.object({
  format: z.literal(1),
  vocabulary: count,
  /** scored per prompt, counted from its end */
  lastPositions: count,
  prompts: z.array(
    z.object({
      /** window of the cycle's set that it is an excerpt of */
      window: count,
      tokens: count,
      /** mean KL(trainer || served) with the adapter, in nats */
      klAdapted: number,
    }),
  ),
  parity: z.object({
    positions: count,
    klBase: number,
    klAdapted: number,
    klLimit: number,
    cosine: number.nullable(),
    cosineLimit: number,
    strength: number.nullable(),
    strengthTolerance: number,
    effect: number,
    noise: number,
    klEffect: number,
    passed: z.boolean(),
  }),
  /** shares of positions at which the likeliest id is the same; measured, not limited */
  sameTop: z.object({ base: number, adapted: number, trainerBaseAndAdapted: number }),
});
export type ParityReport = z.infer<typeof ParityReport>;

/** Share of positions whose likeliest id is the same; the first of equals counts. */
export function sameTopShare(a: ScoredRows, b: ScoredRows): number {
  const positions = a.values.length / a.vocabulary;
  let same = 0;
  for (let row = 0; row < positions; row++) if (topAt(a, row) === topAt(b, row)) same++;
  return same / positions;
}

function topAt({ vocabulary, values }: ScoredRows, row: number): number {
  const from = row * vocabulary;
  let top = 0;
  for (let id = 1; id < vocabulary; id++) if ((values[from + id] as number) > (values[from + top] as number)) top = id;
  return top;
}

/** The rows of one prompt. */
export const rowsOf = ({ vocabulary, values }: ScoredRows, prompt: number, lastPositions: number): ScoredRows => ({
  vocabulary,
  values: values.subarray(prompt * lastPositions * vocabulary, (prompt + 1) * lastPositions * vocabulary),
});
