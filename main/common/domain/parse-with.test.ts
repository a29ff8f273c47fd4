import { expect, it } from 'vitest';
import { z } from 'zod';
import { MassError } from '../base/errors.ts';
import { parseWith } from './parse-with.ts';

const Shape = z.strictObject({ id: z.string(), data: z.object({ seed: z.number() }) });

it('returns the parsed value', () => {
  expect(parseWith(Shape, { id: 'a', data: { seed: 1 } }, 'x')).toEqual({ id: 'a', data: { seed: 1 } });
});

it('names the wrong fields in one sentence, without a dump of the parser, and lists all', () => {
  let error: unknown;
  try {
    parseWith(Shape, { id: 'a', data: { seed: '1' }, extra: 1 }, 'task.json of a');
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(MassError);
  expect((error as MassError).message).toMatch(
    /^task\.json of a has 2 wrong fields \(data\.seed: .*; top level: Unrecognized key: "extra"\); correct and try again\.$/,
  );
  expect((error as MassError).details?.issues).toHaveLength(2);
  expect((error as MassError).cause).toBeUndefined();
});
