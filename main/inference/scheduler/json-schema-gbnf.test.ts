import fc from 'fast-check';
import { getLlama, type Llama, LlamaLogLevel } from 'node-llama-cpp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { JsonSchema } from '../model/served-model.ts';
import { GrammarCompiler } from './grammar.ts';
import { schemaToGbnf } from './json-schema-gbnf.ts';

let llama: Llama;
let compiler: GrammarCompiler;

beforeAll(async () => {
  llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, logLevel: LlamaLogLevel.fatal });
  compiler = new GrammarCompiler(llama);
});
afterAll(() => llama?.dispose());

/** Whether llama.cpp's own grammar engine reads the whole text as a value of the schema. */
async function accepts(schema: JsonSchema, text: string): Promise<boolean> {
  const grammar = (await compiler.compile(schema)) as unknown as { _testText(text: string): boolean };
  return grammar._testText(text);
}

const person = {
  type: 'object',
  properties: {
    name: { type: 'string' },
    age: { type: 'integer' },
    tags: { type: 'array', items: { type: 'string' } },
  },
  required: ['name', 'tags'],
} as const;

describe('schemaToGbnf', () => {
  it.each<[string, JsonSchema, string[], string[]]>([
    [
      'objects: required and optional properties, compact or indented',
      person,
      [
        '{"name":"a","tags":[]}',
        '{"name": "a", "age": 3, "tags": ["x", "y"]}',
        '{\n  "name": "a",\n  "age": 3,\n  "tags": [\n    "x"\n  ]\n}',
        '\n\n{"name":"\\u00e9\\n","tags":[]}',
      ],
      [
        '{"name":"a"}',
        '{"age":3,"name":"a","tags":[]}',
        '{"name":"a","tags":[],"more":1}',
        '{"name":"a","tags":[],}',
        '[]',
      ],
    ],
    [
      'only optional properties',
      { type: 'object', properties: { a: { type: 'null' }, b: { type: 'boolean' } }, additionalProperties: false },
      ['{}', '{"a":null}', '{"b":true}', '{"a":null,"b":false}'],
      ['{"b":true,"a":null}', '{,"b":true}', '{"a":null,}'],
    ],
    [
      'additional properties by schema, and free objects',
      { type: 'object', properties: { a: { type: 'null' } }, additionalProperties: { type: 'integer' } },
      ['{}', '{"a":null,"x":1,"y":2}', '{"x":1}'],
      ['{"x":"1"}'],
    ],
    ['any object', { type: 'object' }, ['{}', '{"a":[1,{"b":null}]}'], ['[]', '1']],
    ['enumerations and constants', { enum: ['A', 'B', 'tie', 3, null] }, ['"A"', '3', 'null'], ['"C"', 'A']],
    ['a constant with quotes', { const: 'say "hi" \\ bye' }, ['"say \\"hi\\" \\\\ bye"'], ['"say hi"']],
    [
      'alternatives',
      { oneOf: [{ type: 'integer' }, { type: 'object', properties: { k: { const: 'x' } }, required: ['k'] }] },
      ['1', '{"k":"x"}'],
      ['"1"'],
    ],
    ['several types', { type: ['string', 'null'], maxLength: 2 }, ['null', '"ab"'], ['"abc"', '1']],
    [
      'string lengths',
      { type: 'string', minLength: 1, maxLength: 3 },
      ['"a"', '"abc"', '"\\n\\n\\n"'],
      ['""', '"abcd"'],
    ],
    [
      'a long string bound',
      { type: 'string', maxLength: 2500 },
      ['""', `"${'x'.repeat(999)}"`, `"${'x'.repeat(1000)}"`, `"${'x'.repeat(2500)}"`],
      [`"${'x'.repeat(2501)}"`],
    ],
    ['a long lower bound', { type: 'string', minLength: 2100 }, [`"${'x'.repeat(2100)}"`], [`"${'x'.repeat(2099)}"`]],
    [
      'item counts',
      { type: 'array', items: { type: 'integer' }, minItems: 1, maxItems: 3 },
      ['[1]', '[1, 2, 3]'],
      ['[]', '[1,2,3,4]'],
    ],
    ['no items', { type: 'array', maxItems: 0 }, ['[]'], ['[1]']],
    ['one item', { type: 'array', items: { type: 'integer' }, minItems: 1, maxItems: 1 }, ['[7]'], ['[]', '[1,2]']],
    ['a small range', { type: 'integer', minimum: -1, maximum: 2 }, ['-1', '0', '2'], ['3', '-2', '1.5']],
    ['positive integers', { type: 'integer', exclusiveMinimum: 0 }, ['1', '10'], ['0', '-1', '01']],
    ['numbers', { type: 'number' }, ['0', '-1.5', '2e-3'], ['.5', '01', '+1']],
    ['shares', { type: 'number', minimum: 0, maximum: 1 }, ['0', '0.25', '1', '1.0'], ['1.5', '-0.1']],
    [
      'references that recur',
      {
        $defs: {
          node: {
            type: 'object',
            properties: { next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] } },
            required: ['next'],
          },
        },
        $ref: '#/$defs/node',
      },
      ['{"next":null}', '{"next":{"next":{"next":null}}}'],
      ['{"next":1}'],
    ],
    [
      'property names with quotes and slashes',
      { type: 'object', properties: { 'a"b\\c': { type: 'null' } }, required: ['a"b\\c'] },
      ['{"a\\"b\\\\c":null}'],
      ['{"ab":null}'],
    ],
  ])('%s', async (_, schema, good, bad) => {
    for (const text of good) expect([text, await accepts(schema, text)]).toEqual([text, true]);
    for (const text of bad) expect([text, await accepts(schema, text)]).toEqual([text, false]);
  });

  it.each<[JsonSchema, string]>([
    [{ type: 'string', pattern: '^a' }, '"pattern" at #'],
    [{ type: 'object', properties: { a: { type: 'string', format: 'email' } } }, '"format" at #/properties/a'],
    [{ type: 'array', items: { type: 'integer', multipleOf: 2 } }, '"multipleOf" at #/items'],
    [{ type: 'array', uniqueItems: true }, '"uniqueItems" at #'],
    [{ not: { type: 'null' } }, '"not" at #'],
    [{ type: 'integer', minimum: 5 }, '# bounds an integer by minimum'],
    [{ type: 'integer', minimum: 5, maximum: 1 }, 'maximum'],
    [{ type: 'number', minimum: 3 }, '# bounds a number'],
    [{ type: 'object', properties: {}, required: ['x'] }, '"x", which is not a property'],
    [{ type: 'array', minItems: 2, maxItems: 1 }, 'smaller than minItems 2'],
    [{ type: 'string', minLength: -1 }, '#/minLength is not a whole number'],
    [{ $ref: '#/$defs/missing' }, 'does not exist'],
    [{ $ref: 'other.json' }, 'outside the schema'],
    [{ type: 'sting' }, 'not a JSON type'],
    [{ enum: [] }, 'is empty'],
    [{ anyOf: [] }, 'is empty'],
    [{ allOf: [{ type: 'string' }, { minLength: 3 }] }, 'more than one part'],
    [{ type: 'object', properties: { a: 'string' } }, '#/properties/a is not a schema object'],
  ])('refuses %j by name', (schema, reason) => {
    expect(() => schemaToGbnf(schema)).toThrow(expect.objectContaining({ code: 'invalid_input' }));
    expect(() => schemaToGbnf(schema)).toThrow(reason);
  });

  it('takes the schemas zod writes', async () => {
    const verdict = z.strictObject({
      winner: z.enum(['A', 'B', 'tie']),
      score: z.int().min(0).max(10),
      count: z.int(),
      notes: z.array(z.string().max(200)).max(5).optional(),
      nested: z.discriminatedUnion('kind', [
        z.object({ kind: z.literal('a') }),
        z.object({ kind: z.literal('b'), n: z.number() }),
      ]),
    });
    const schema = z.toJSONSchema(verdict) as JsonSchema;
    expect(await accepts(schema, '{"winner":"tie","score":10,"count":-12,"nested":{"kind":"b","n":1.5}}')).toBe(true);
    expect(await accepts(schema, '{"winner":"tie","score":11,"count":1,"nested":{"kind":"a"}}')).toBe(false);
  });

  it('accepts any JSON value as JSON.stringify prints it, compact or indented', async () => {
    const schema = { type: 'object', properties: { value: {} }, required: ['value'] };
    const value = fc.jsonValue({ maxDepth: 3 }).filter((json) => !/e[+-]?\d|\d{17}/.test(JSON.stringify(json)));
    await fc.assert(
      fc.asyncProperty(value, fc.constantFrom(undefined, 2), async (json, indent) => {
        expect(await accepts(schema, JSON.stringify({ value: json }, null, indent))).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it('refuses arbitrary objects without crashing or hanging', () => {
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.constantFrom('type', 'properties', 'items', 'enum', '$ref', 'anyOf', 'required', 'minLength', 'x'),
          fc.jsonValue(),
        ),
        (schema) => {
          try {
            expect(schemaToGbnf(schema)).toContain('root ::=');
          } catch (error) {
            expect(error).toMatchObject({ code: 'invalid_input' });
          }
        },
      ),
    );
  });
});
