import { MassError } from '../../../common/base/errors.ts';

export type CountTokens = (text: string) => number | Promise<number>;

/** Below this a submission shows little more than which files exist. */
export const LEAST_SUBMISSION_TOKENS = 160;

/**
 * Tokens one of two submissions may take: (context - output - safety - fixed text) / 2, rounded down.
 * Errors: `invalid_input` with the numbers when fewer than `LEAST_SUBMISSION_TOKENS` remain.
 */
export function evidenceBudget(options: {
  readonly contextTokens: number;
  readonly outputTokens: number;
  readonly safetyTokens: number;
  /** system text, task, rubric, fences and template */
  readonly fixedTokens: number;
}): number {
  const { contextTokens, outputTokens, safetyTokens, fixedTokens } = options;
  const budget = Math.floor((contextTokens - outputTokens - safetyTokens - fixedTokens) / 2);
  if (budget >= LEAST_SUBMISSION_TOKENS) return budget;
  const short = (LEAST_SUBMISSION_TOKENS - budget) * 2;
  throw new MassError(
    'invalid_input',
    `A judgment does not fit: of ${contextTokens} context tokens ${outputTokens} are kept for the answer, ${safetyTokens} free and ${fixedTokens} for task and rules; lower judging.callTokens or executor.contextSafety, or raise model.contextSize, by ${short} tokens.`,
    { details: { ...options, budget } },
  );
}

/** A text that can be rendered at any size. `complete`: nothing was cut. */
export interface Sized {
  readonly text: string;
  readonly complete: boolean;
}

/**
 * The largest rendering that fits `maxTokens`. `render` takes a number of characters that it tries to keep to; tokens
 * are always counted on the text it returns. At most 14 counts. Null when even `render(0)` is too long.
 */
export async function fitToTokens<T extends Sized>(options: {
  readonly render: (characters: number) => T;
  /** characters at which nothing needs cutting; an upper bound will do */
  readonly fullCharacters: number;
  readonly maxTokens: number;
  readonly countTokens: CountTokens;
}): Promise<{ rendering: T; tokens: number } | null> {
  const { render, fullCharacters, maxTokens, countTokens } = options;
  let best: { rendering: T; tokens: number } | null = null;
  let low = -1; // largest size known to fit
  let high = fullCharacters + 1; // smallest size known not to fit
  // No tokenizer in use packs more than about eight characters into a token of ordinary text.
  let size = Math.min(fullCharacters, maxTokens * 8);
  for (let count = 0; count < 12 && size > low && size < high; count++) {
    const rendering = render(size);
    const tokens = await countTokens(rendering.text);
    const ratio = (maxTokens * rendering.text.length) / Math.max(1, tokens) - rendering.text.length;
    if (tokens <= maxTokens) {
      best = { rendering, tokens };
      if (rendering.complete || tokens >= maxTokens * 0.97) return best;
      low = size;
      size = Math.max(low + 1, Math.min(Math.floor(size + ratio * 0.99), Math.floor((low + high) / 2)));
    } else {
      high = size;
      const proportional = Math.floor(size + Math.min(-1, ratio * 1.02));
      size = proportional > low ? Math.min(proportional, high - 1) : Math.floor((low + high) / 2);
    }
  }
  if (best !== null || low >= 0) return best;
  const rendering = render(0);
  const tokens = await countTokens(rendering.text);
  return tokens <= maxTokens ? { rendering, tokens } : null;
}

/**
 * Splits `total` characters over texts of known length: first each gets at most its weighted share, then what is left
 * goes in the order given to those still short. The sum never exceeds `total`.
 */
export function allocate(
  total: number,
  wants: readonly { readonly need: number; readonly weight: number }[],
): number[] {
  const weights = wants.reduce((sum, { need, weight }) => sum + (need > 0 ? weight : 0), 0);
  if (weights === 0) return wants.map(() => 0);
  const given = wants.map(({ need, weight }) => Math.min(need, Math.floor((total * weight) / weights)));
  let left = total - given.reduce((sum, share) => sum + share, 0);
  return given.map((share, index) => {
    const more = Math.min(left, (wants[index]?.need ?? 0) - share);
    left -= more;
    return share + more;
  });
}
