import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MassError } from './errors.ts';
import { parseJson, parseLooseJson, positionInText } from './parse-json.ts';

const failure = (text: string): MassError => {
  try {
    parseJson(text, 'task.json');
  } catch (error) {
    if (error instanceof MassError) return error;
  }
  throw new Error('expected a MassError');
};

describe('parseJson', () => {
  it('parses, with or without a byte order mark', () => {
    expect(parseJson('{"a":[1]}', 'x')).toEqual({ a: [1] });
    expect(parseJson('\uFEFF{"a":1}', 'x')).toEqual({ a: 1 });
  });

  it('names line and column of a wrong token', () => {
    const error = failure('{\n  "id": "a",\n  "number" 4\n}');
    expect(error.message).toBe('task.json is not JSON at line 3, column 12; correct it there and try again.');
    expect(error.details).toEqual({ line: 3, column: 12 });
  });

  it('names the end of a text that stops early, and says when it is empty', () => {
    expect(failure('{\n "a": [1').message).toContain('line 2, column 9');
    expect(failure(' \n').message).toBe('task.json is empty; correct it there and try again.');
  });

  it('accepts what JSON.parse accepts and turns every other text into a MassError', () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), (text) => {
        let expected: unknown;
        try {
          expected = JSON.parse(text);
        } catch {
          expect(failure(text).code).toBe('invalid_input');
          return;
        }
        expect(parseJson(text, 'x')).toEqual(expected);
      }),
    );
  });
});

describe('positionInText', () => {
  it('counts from 1', () => {
    expect(positionInText('ab\ncd', 0)).toEqual({ line: 1, column: 1 });
    expect(positionInText('ab\ncd', 4)).toEqual({ line: 2, column: 2 });
  });
});

describe('parseLooseJson', () => {
  it('reads what Python writes for numbers that are none', () => {
    expect(parseLooseJson('{"a": NaN, "b": [-Infinity, Infinity, 1.5], "c": "NaN \\" Infinity"}')).toEqual({
      value: { a: 'NaN', b: ['-Infinity', 'Infinity', 1.5], c: 'NaN " Infinity' },
      bareNumbers: 3,
    });
    expect(parseLooseJson('\uFEFF{}')).toEqual({ value: {}, bareNumbers: 0 });
  });
  it('says what is no JSON', () => {
    for (const text of ['', '{', '{"a": Nan}', '{"a": Info}', '"open', '"\\', 'NaNNaN', '[1 NaN]'])
      expect([text, parseLooseJson(text)]).toEqual([text, { problem: 'not JSON' }]);
  });
  it('bounds nesting, and takes linear time over quotes that never close', () => {
    expect(parseLooseJson('['.repeat(257) + ']'.repeat(257))).toEqual({ problem: 'nested too deeply' });
    expect(parseLooseJson('['.repeat(256) + ']'.repeat(256))).toMatchObject({ bareNumbers: 0 });
    expect(parseLooseJson(`"${'\\"'.repeat(1_000_000)}`)).toEqual({ problem: 'not JSON' });
  });
  it('agrees with JSON.parse on standard JSON', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(parseLooseJson(text, 10_000)).toEqual({ value: JSON.parse(text), bareNumbers: 0 });
      }),
    );
  });
});
