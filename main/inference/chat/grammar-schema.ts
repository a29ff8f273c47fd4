import { MassError } from '../../common/base/errors.ts';
import { isJsonObject, type JsonObject } from './json-object.ts';

/** Bounds of what a tool's schema leaves open, in characters and items: a weak model's string must end. */
export const maxStringLength = 2000;
const maxArrayItems = 64;
const maxDepth = 24;

/**
 * The part of a tool's JSON Schema that a grammar enforces: types, properties, required, enum and const, alternatives,
 * lengths. Everything else is dropped: whoever executes the call checks it and can tell the model. References are put in
 * place, since the schema becomes part of a larger one.
 * @throws MassError invalid_input for a reference that leads nowhere, or a schema nested without end
 */
export function boundedSchema(schema: unknown): JsonObject {
  return convert(schema, schema, 0);
}

function convert(schema: unknown, root: unknown, depth: number): JsonObject {
  if (depth > maxDepth) {
    throw new MassError(
      'invalid_input',
      `A tool's schema may be nested at most ${maxDepth} levels deep, without cycles.`,
    );
  }
  if (!isJsonObject(schema)) return {};
  const inner = (part: unknown) => convert(part, root, depth + 1);
  if (typeof schema.$ref === 'string') return inner(resolve(schema.$ref, root));
  if ('const' in schema) return { const: schema.const };
  if (Array.isArray(schema.enum) && schema.enum.length > 0) return { enum: schema.enum };
  const variants = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(variants) && variants.length > 0) return { anyOf: variants.map(inner) };
  if (Array.isArray(schema.allOf) && schema.allOf.length === 1) return inner(schema.allOf[0]);
  if (Array.isArray(schema.type)) return { anyOf: schema.type.map((type) => inner({ ...schema, type })) };
  switch (schema.type ?? (isJsonObject(schema.properties) ? 'object' : undefined)) {
    case 'string':
      return { type: 'string', ...bounds(schema, 'Length', maxStringLength) };
    case 'array':
      return { type: 'array', items: inner(schema.items ?? {}), ...bounds(schema, 'Items', maxArrayItems) };
    case 'object':
      return objectSchema(schema, inner);
    case 'number':
    case 'integer':
    case 'boolean':
    case 'null':
      return { type: schema.type };
    default:
      return {};
  }
}

function objectSchema(schema: JsonObject, inner: (part: unknown) => JsonObject): JsonObject {
  const properties = isJsonObject(schema.properties) ? schema.properties : {};
  const names = Object.keys(properties);
  if (names.length === 0) return { type: 'object', additionalProperties: schema.additionalProperties !== false };
  const required = Array.isArray(schema.required) ? schema.required : [];
  return {
    type: 'object',
    properties: Object.fromEntries(names.map((name) => [name, inner(properties[name])])),
    required: names.filter((name) => required.includes(name)),
    additionalProperties: false,
  };
}

function bounds(schema: JsonObject, what: 'Length' | 'Items', fallback: number): JsonObject {
  const whole = (value: unknown) => (Number.isSafeInteger(value) && Number(value) >= 0 ? Number(value) : null);
  const min = whole(schema[`min${what}`]) ?? 0;
  const max = Math.max(min, whole(schema[`max${what}`]) ?? fallback);
  return { [`min${what}`]: min, [`max${what}`]: max };
}

function resolve(pointer: string, root: unknown): unknown {
  const [start, ...parts] = pointer.split('/');
  let at = start === '#' ? root : undefined;
  for (const part of parts) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  if (at !== undefined) return at;
  throw new MassError('invalid_input', `The schema reference ${pointer.slice(0, 80)} leads nowhere.`);
}
