import { z } from 'zod';

/** Longest strings, in characters, a model is offered per argument; `undefined`: no bound. */
export interface TextBounds {
  readonly path: number | undefined;
  readonly role: number | undefined;
  readonly command: number | undefined;
  readonly assignment: number | undefined;
  readonly content: number | undefined;
  /** each of `find` and `replace` */
  readonly passage: number | undefined;
}

export const UNBOUNDED: TextBounds = {
  path: undefined,
  role: undefined,
  command: undefined,
  assignment: undefined,
  content: undefined,
  passage: undefined,
};

/** Tokens of a call besides its longest string: names, braces, a path. */
const CALL_TOKENS = 96;
/** JSON-escaped code of a small vocabulary yields about this many characters a token, at worst in practice. */
const CHARACTERS_PER_TOKEN = 2;
/** llama.cpp refuses a grammar that repeats a rule more than 2,000 times (MAX_REPETITION_THRESHOLD). */
const LARGEST_BOUND = 1900;
const SMALLEST_BOUND = 80;

/**
 * Bounds that let a decoder constrained by them finish the JSON of a call within `turnTokens`. A turn with room for more
 * than a grammar can count gets none on long texts: it is rarely cut, and a bound would only hinder.
 */
export function textBounds(turnTokens: number): TextBounds {
  const room = Math.max(SMALLEST_BOUND, (turnTokens - CALL_TOKENS) * CHARACTERS_PER_TOKEN);
  const path = Math.min(200, room);
  const role = Math.min(80, room);
  if (room > LARGEST_BOUND) return { ...UNBOUNDED, path, role };
  return { path, role, command: room, assignment: room, content: room, passage: Math.floor(room / 2) };
}

const text = (bound: number | undefined) => (bound === undefined ? z.string() : z.string().max(bound));
const words = (bound: number | undefined) => text(bound).regex(/\S/, 'must not be blank');
/** Some tool formats carry every value as text: "3" is accepted for 3. */
const lines = (largest: number) => z.coerce.number().int().min(1).max(largest);

/** `bounds` are those of `textBounds` for what the model is shown, `UNBOUNDED` for what is accepted. */
export function argumentSchemas(bounds: TextBounds) {
  const shown = bounds !== UNBOUNDED;
  // A pattern would enter the grammar of a constrained decoder; the accepting schema checks for blanks.
  const filled = (bound: number | undefined) => (shown ? text(bound).min(1) : words(bound));
  return {
    delegate: z.strictObject({ role: filled(bounds.role), assignment: filled(bounds.assignment) }),
    listFiles: z.strictObject({ path: text(bounds.path).optional() }),
    readFile: z.strictObject({
      path: filled(bounds.path),
      offset: lines(10_000_000).optional(),
      limit: lines(100_000).optional(),
    }),
    writeFile: z.strictObject({ path: filled(bounds.path), content: text(bounds.content) }),
    editFile: z.strictObject({
      path: filled(bounds.path),
      find: text(bounds.passage).min(1),
      replace: text(bounds.passage),
    }),
    runCommand: z.strictObject({ command: filled(bounds.command) }),
  };
}
