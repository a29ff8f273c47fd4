import { describe, expect, it } from 'vitest';
import { findJson, jsonText } from './embedded-json.ts';

const any = (): boolean => true;

describe('findJson', () => {
  it('finds JSON by its brackets and returns what stands around it', () => {
    expect(findJson('see {"a": "}]"} there', any)).toEqual({ value: { a: '}]' }, before: 'see ', after: ' there' });
    expect(findJson('[1, [2]]', any)).toEqual({ value: [1, [2]], before: '', after: '' });
    expect(findJson('no JSON {here}', any)).toBeNull();
    expect(findJson('"text"', any)).toBeNull();
  });

  it('removes a fence that only wraps it', () => {
    expect(findJson('x\n```json\n{}\n```\ny', any)).toEqual({ value: {}, before: 'x\n', after: '\ny' });
    expect(findJson('```\n{}', any)?.before).toBe('```\n');
  });

  it('prefers what is wanted to what comes first, and falls back to the first', () => {
    const wanted = (value: unknown): boolean => !Array.isArray(value);
    expect(findJson('[1] {"a": 1}', wanted)?.value).toEqual({ a: 1 });
    expect(findJson('[1] [2]', wanted)?.value).toEqual([1]);
  });

  it('steps over an opening bracket that never closes', () => {
    expect(findJson('{ broken "quote [ \n" [3]', any)?.value).toEqual([3]);
  });

  it('writes any value without throwing', () => {
    expect(jsonText({ a: [1] })).toBe('{"a":[1]}');
    expect(jsonText(undefined)).toBe('');
    let deep: unknown = 1;
    for (let i = 0; i < 200_000; i++) deep = [deep];
    expect(jsonText(deep)).toBe('"(nested too deeply)"');
  });
});
