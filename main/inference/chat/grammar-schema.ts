import { MassError } from '../../common/base/errors.ts';
import { isJsonObject, type JsonObject } from './json-object.ts';

/**
 * Longest string a grammar bounds, in characters: llama.cpp refuses rules near 2,000 repetitions and silently treats
 * longer ones as unbounded.
 */
export const maxStringLength = 1500;
const maxArrayItems = 64;
const maxDepth = 24;

export interface GrammarSchemaOptions {
  /** Bound what the schema leaves open, so that a weak model's string or list ends. */
  readonly bounded: boolean;
  /**
   * The grammar always asks for every property, in order. Optional ones may then be null, for the parser to leave out;
   * without this they are simply always given, which the schema also allows.
   */
  readonly optionalAsNull: boolean;
}

/**
 * A JSON Schema in the dialect of the grammar compiler (const, enum, oneOf, object, array, string lengths, $defs).
 * Structure is enforced; value ranges and patterns are not.
 * @throws MassError invalid_input for what cannot be expressed (not, allOf of several, references outside $defs)
 */
export function grammarSchema(schema: unknown, options: GrammarSchemaOptions, depth = 0): JsonObject {
  if (depth > maxDepth) throw new MassError('invalid_input', `A schema may be nested at most ${maxDepth} levels deep.`);
  if (schema === true) return anyValue();
  if (!isJsonObject(schema)) throw new MassError('invalid_input', 'A JSON Schema must be an object.');
  const inner = (part: unknown) => grammarSchema(part, options, depth + 1);
  const defs = isJsonObject(schema.$defs) ? { $defs: mapValues(schema.$defs, inner) } : {};
  return { ...convert(schema, options, inner), ...defs };
}

function convert(schema: JsonObject, options: GrammarSchemaOptions, inner: (part: unknown) => JsonObject): JsonObject {
  for (const keyword of ['not', 'if', 'patternProperties', 'dependentSchemas', '$dynamicRef']) {
    if (schema[keyword] !== undefined) throw unsupported(keyword);
  }
  if (schema.$ref !== undefined) return reference(schema.$ref);
  if (schema.const !== undefined) return { const: literal(schema.const) };
  if (Array.isArray(schema.enum)) return { enum: schema.enum.map(literal) };
  const variants = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(variants)) return { oneOf: variants.map(inner) };
  if (Array.isArray(schema.allOf)) {
    if (schema.allOf.length !== 1) throw unsupported('allOf');
    return inner(schema.allOf[0]);
  }
  if (Array.isArray(schema.type))
    return { oneOf: schema.type.map((type) => inner({ ...schema, $defs: undefined, type })) };
  const type = schema.type ?? (schema.properties !== undefined ? 'object' : undefined);
  switch (type) {
    case undefined:
      return anyValue();
    case 'string':
      return { type, ...bounds(schema, options.bounded ? maxStringLength : null, 'Length', maxStringLength) };
    case 'array':
      return {
        type,
        ...(schema.items === undefined ? {} : { items: inner(schema.items) }),
        ...(Array.isArray(schema.prefixItems) ? { prefixItems: schema.prefixItems.map(inner) } : {}),
        ...bounds(schema, options.bounded ? maxArrayItems : null, 'Items', maxStringLength),
      };
    case 'object':
      return objectSchema(schema, options, inner);
    case 'number':
    case 'integer':
    case 'boolean':
    case 'null':
      return { type };
    default:
      throw new MassError('invalid_input', `The schema type ${JSON.stringify(type).slice(0, 60)} is unknown.`);
  }
}

function objectSchema(
  schema: JsonObject,
  options: GrammarSchemaOptions,
  inner: (part: unknown) => JsonObject,
): JsonObject {
  const properties = isJsonObject(schema.properties) ? schema.properties : {};
  const names = Object.keys(properties);
  if (names.length === 0) {
    const open = schema.additionalProperties ?? true;
    return { type: 'object', additionalProperties: isJsonObject(open) ? inner(open) : open !== false };
  }
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const entries = names.map((name): [string, JsonObject] => {
    const value = inner(properties[name]);
    return [name, options.optionalAsNull && !required.has(name) ? { oneOf: [value, { type: 'null' }] } : value];
  });
  return { type: 'object', properties: Object.fromEntries(entries), required: names };
}

function bounds(schema: JsonObject, fallback: number | null, what: 'Length' | 'Items', ceiling: number): JsonObject {
  const limit = (value: unknown) =>
    typeof value === 'number' && value >= 0 ? Math.min(Math.floor(value), ceiling) : null;
  const min = limit(schema[`min${what}`]);
  const max = limit(schema[`max${what}`]) ?? fallback;
  return { ...(min === null ? {} : { [`min${what}`]: min }), ...(max === null ? {} : { [`max${what}`]: max }) };
}

const anyValue = (): JsonObject => ({
  oneOf: [
    { type: 'string' },
    { type: 'number' },
    { type: 'boolean' },
    { type: 'null' },
    { type: 'array' },
    { type: 'object', additionalProperties: true },
  ],
});

function reference(ref: unknown): JsonObject {
  if (typeof ref !== 'string' || !/^#\/\$defs\/[^/]+$/.test(ref)) throw unsupported('$ref outside $defs');
  return { $ref: ref };
}

function literal(value: unknown): string | number | boolean | null {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  throw unsupported('const or enum of objects');
}

const mapValues = (value: JsonObject, change: (part: unknown) => JsonObject): Record<string, JsonObject> =>
  Object.fromEntries(Object.entries(value).map(([key, part]) => [key, change(part)]));

const unsupported = (keyword: string): MassError =>
  new MassError('invalid_input', `A grammar cannot enforce "${keyword}"; write the schema without it.`);
