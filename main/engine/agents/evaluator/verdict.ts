import { z } from 'zod';
import type { JsonSchema } from '../../endpoints/endpoint.ts';
import { type Parsed, parseAnswer } from '../structured-call.ts';

export const criteria = ['coverage', 'rigor', 'reproducibility', 'presentation', 'engineering', 'alignment'] as const;
const side = ['A', 'B', 'tie'] as const;
export const Side = z.enum(side);
export type Side = z.infer<typeof Side>;

export const Verdict = z.object({
  rationale: z.string().refine((text) => text.trim() !== '', 'must not be empty'),
  citations: z.array(z.string()),
  /** better side per criterion; asked for where the answer has room */
  criteria: z.record(z.enum(criteria), Side).optional(),
  verdict: Side,
});
export type Verdict = z.infer<typeof Verdict>;

export interface VerdictLimits {
  readonly rationaleCharacters: number;
  readonly citations: number;
  readonly citationCharacters: number;
  readonly criteria: boolean;
}

/** llama.cpp refuses a grammar that repeats an element 2,000 times. */
export const MAX_SCHEMA_LENGTH = 1900;

/**
 * Lengths that let the object end within the call. A model that reasons first gets a quarter of the call for the answer
 * proper. One character may cost a whole token (digits do), so a rationale gets 0.8 characters per token.
 */
export function verdictLimits(callTokens: number, thinking: boolean): VerdictLimits {
  const answerTokens = thinking ? Math.floor(callTokens / 4) : callTokens;
  const roomy = answerTokens >= 480;
  return {
    rationaleCharacters: Math.min(MAX_SCHEMA_LENGTH, Math.max(80, Math.floor(answerTokens * 0.8))),
    citations: roomy ? 6 : 2,
    citationCharacters: roomy ? 80 : 40,
    criteria: roomy,
  };
}

/** Property order is generation order: the rationale comes before the verdict that it has to carry. */
export function verdictSchema(limits: VerdictLimits): JsonSchema {
  const oneSide = { enum: side };
  const properties = {
    rationale: { type: 'string', minLength: 1, maxLength: limits.rationaleCharacters },
    citations: {
      type: 'array',
      items: { type: 'string', minLength: 1, maxLength: limits.citationCharacters },
      minItems: 0,
      maxItems: limits.citations,
    },
    ...(limits.criteria ? { criteria: closed(Object.fromEntries(criteria.map((name) => [name, oneSide]))) } : {}),
    verdict: oneSide,
  };
  return closed(properties);
}

const closed = (properties: Record<string, unknown>): JsonSchema => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

export const parseVerdict = (content: string): Parsed<Verdict> => parseAnswer(Verdict, content);
