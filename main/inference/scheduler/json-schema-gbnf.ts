import { MassError } from '../../common/base/errors.ts';
import type { JsonSchema } from '../model/served-model.ts';
import { integerRange } from './gbnf-integers.ts';

/**
 * JSON Schema to GBNF, llama.cpp's grammar notation. Written here because node-llama-cpp's own conversion makes every
 * property required, turns what it does not know into null, and asks for four newlines after the value.
 *
 * Properties come in the schema's order (models are told the schema, and one order keeps the grammar linear). An object
 * schema with `properties` but without `additionalProperties` allows no others: a grammar should not invite inventions.
 * Unknown keywords are refused by name: a constraint that is silently not enforced is worse than none.
 */
export function schemaToGbnf(schema: JsonSchema): string {
  return new GbnfWriter(schema).write();
}

/** Say something about a value without restricting it, or are read where they are used. */
const ANNOTATIONS = new Set([
  ...['title', 'description', 'default', 'examples', 'example', 'deprecated', 'readOnly', 'writeOnly'],
  ...['$schema', '$id', '$comment', '$defs', 'definitions'],
]);

const SHARED_RULES: Readonly<Record<string, string>> = {
  // Blanks only where printers of JSON put them, and bounded: a weak model would fill its budget with them.
  start: String.raw`| " " | "\n"{1,2}`,
  gap: String.raw`| " " | "\n" [ \t]{0,20}`,
  colon: `":" " "?`,
  char: String.raw`[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})`,
  string: String.raw`"\"" char* "\""`,
  integer: `"-"? ("0" | [1-9] [0-9]{0,15})`,
  number: `"-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?`,
  boolean: `"true" | "false"`,
  null: `"null"`,
  any: 'object | array | string | number | boolean | null',
  object: `"{" gap (member ("," gap member)* gap)? "}"`,
  member: 'string colon any',
  array: `"[" gap (any ("," gap any)* gap)? "]"`,
};

const SHARED_USES: Readonly<Record<string, readonly string[]>> = {
  string: ['char'],
  any: ['object', 'array', 'string', 'number', 'boolean', 'null'],
  object: ['gap', 'member'],
  member: ['string', 'colon', 'any'],
  array: ['gap', 'any'],
};

/** llama.cpp refuses to repeat a symbol 2,000 times or more in one rule. */
const REPEAT_BLOCK = 1000;
/** Longest string bound that is expanded into rules. */
const MAX_STRING = 100_000;
const MAX_ITEMS = 1000;

class GbnfWriter {
  readonly #root: JsonSchema;
  readonly #rules = new Map<string, string>();
  readonly #references = new Map<string, string>();
  #next = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  write(): string {
    const value = this.#value(this.#root, '#');
    // A reasoning block or a role header may be followed by a line break before the value.
    this.#rules.set('root', `${this.#shared('start')} ${value}`);
    return `${[...this.#rules].map(([name, body]) => `${name} ::= ${body}`).join('\n')}\n`;
  }

  /** A symbol or parenthesised expression for one value. */
  #value(schema: unknown, path: string): string {
    if (schema === true) return this.#shared('any');
    if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
      return refuse(path, 'is not a schema object');
    const node = schema as JsonSchema;
    if (node.$ref !== undefined) return this.#reference(node, path);
    if ('const' in node) return this.#only(node, path, ['const', 'type'], literal(node.const));
    if (node.enum !== undefined) return this.#enumeration(node, path);
    for (const keyword of ['oneOf', 'anyOf'] as const)
      if (node[keyword] !== undefined) return this.#alternatives(node, keyword, path);
    if (node.allOf !== undefined) {
      const parts = list(node.allOf, `${path}/allOf`);
      if (parts.length !== 1) refuse(`${path}/allOf`, 'has more than one part, which cannot be enforced');
      return this.#only(node, path, ['allOf'], this.#value(parts[0], `${path}/allOf/0`));
    }
    return this.#typed(node, path);
  }

  #typed(node: JsonSchema, path: string): string {
    if (Array.isArray(node.type)) {
      const choices = node.type.map((type) => this.#ofType({ ...node, type }, path, node.type as unknown[]));
      return `(${choices.join(' | ')})`;
    }
    if (node.type === undefined) {
      const type = inferType(node);
      if (type === null) return this.#only(node, path, [], this.#shared('any'));
      return this.#ofType({ ...node, type }, path, [type]);
    }
    return this.#ofType(node, path, [node.type]);
  }

  /** `types` are all the types of the node: a keyword of another of them is not unknown here. */
  #ofType(node: JsonSchema, path: string, types: readonly unknown[]): string {
    const allowed = types.flatMap((type) => TYPE_KEYWORDS[String(type)] ?? []);
    checkKeywords(node, path, ['type', ...allowed]);
    switch (node.type) {
      case 'object':
        return this.#object(node, path);
      case 'array':
        return this.#array(node, path);
      case 'string':
        return this.#string(node, path);
      case 'integer':
        return this.#integer(node, path);
      case 'number':
        return this.#number(node, path);
      case 'boolean':
      case 'null':
        return this.#shared(node.type);
      default:
        return refuse(`${path}/type`, `is ${JSON.stringify(node.type)}, which is not a JSON type`);
    }
  }

  #object(node: JsonSchema, path: string): string {
    const properties = record(node.properties ?? {}, `${path}/properties`);
    const names = Object.keys(properties);
    const required = new Set(list(node.required ?? [], `${path}/required`).map(String));
    for (const name of required)
      if (!names.includes(name)) refuse(`${path}/required`, `names ${JSON.stringify(name)}, which is not a property`);
    const extra = node.additionalProperties ?? names.length === 0;
    const gap = this.#shared('gap');
    const colon = this.#shared('colon');
    const members = names.map((name, i) => {
      const value = this.#value(properties[name], `${path}/properties/${name}`);
      return {
        rule: this.#rule(`member${i}`, `${quoted(JSON.stringify(name))} ${colon} ${value}`),
        required: required.has(name),
      };
    });
    const open = extra === false ? null : this.#extraMember(extra, path);
    // `first` reads the rest when nothing has been written yet, `next` when a comma is due.
    let first = open === null ? '' : `(${open} ("," ${gap} ${open})*)?`;
    let next = open === null ? '' : `("," ${gap} ${open})*`;
    for (const member of members.toReversed()) {
      const after = this.#rule('after', next === '' ? '""' : next);
      first = member.required
        ? `${member.rule} ${after}`
        : `(${member.rule} ${after} | ${first === '' ? '""' : first})`;
      next = member.required ? `"," ${gap} ${member.rule} ${after}` : `("," ${gap} ${member.rule})? ${after}`;
    }
    if (first === '') return this.#rule('object', `"{" ${gap} "}"`);
    return this.#rule('object', `"{" ${gap} ${first} ${gap} "}"`);
  }

  #extraMember(extra: unknown, path: string): string {
    if (extra === true) return this.#shared('member');
    const value = this.#value(extra, `${path}/additionalProperties`);
    return this.#rule('extra', `${this.#shared('string')} ${this.#shared('colon')} ${value}`);
  }

  #array(node: JsonSchema, path: string): string {
    const gap = this.#shared('gap');
    const items = node.items === undefined ? this.#shared('any') : this.#value(node.items, `${path}/items`);
    const item = this.#rule('item', items);
    const further = this.#rule('further', `"," ${gap} ${item}`);
    const min = count(node.minItems ?? 0, `${path}/minItems`);
    const max = node.maxItems === undefined ? null : count(node.maxItems, `${path}/maxItems`);
    if (max !== null && max < min) refuse(`${path}/maxItems`, `is smaller than minItems ${min}`);
    if (min > MAX_ITEMS || (max ?? 0) > MAX_ITEMS) refuse(path, `bounds its items beyond ${MAX_ITEMS}`);
    if (max === 0) return this.#rule('array', `"[" ${gap} "]"`);
    const rest = max === 1 ? '' : `${further}{${Math.max(0, min - 1)},${max === null ? '' : max - 1}}`;
    const filled = `${item} ${rest} ${gap}`;
    return this.#rule('array', `"[" ${gap} ${min > 0 ? filled : `(${filled})?`} "]"`);
  }

  #string(node: JsonSchema, path: string): string {
    if (node.minLength === undefined && node.maxLength === undefined) return this.#shared('string');
    const min = count(node.minLength ?? 0, `${path}/minLength`);
    const max = node.maxLength === undefined ? null : count(node.maxLength, `${path}/maxLength`);
    if (max !== null && max < min) refuse(`${path}/maxLength`, `is smaller than minLength ${min}`);
    if (min > MAX_STRING || (max ?? 0) > MAX_STRING) refuse(path, `bounds its length beyond ${MAX_STRING}`);
    const char = this.#shared('char');
    const fixed = this.#exactly(char, min);
    const rest = max === null ? `${char}*` : this.#atMost(char, max - min);
    return this.#rule('string', `"\\"" ${fixed} ${rest} "\\""`);
  }

  #exactly(symbol: string, times: number): string {
    const blocks = Math.floor(times / REPEAT_BLOCK);
    const block = blocks === 0 ? '' : this.#rule('block', `${symbol}{${REPEAT_BLOCK}}`);
    const rest = times % REPEAT_BLOCK;
    return [...new Array<string>(blocks).fill(block), rest === 0 ? '' : `${symbol}{${rest}}`].join(' ').trim();
  }

  /** Up to `times`: either a whole block and the rest of the bound, or fewer than a block, so at most two readings live at once. */
  #atMost(symbol: string, times: number): string {
    if (times < REPEAT_BLOCK) return times === 0 ? '' : `${symbol}{0,${times}}`;
    const block = this.#rule('block', `${symbol}{${REPEAT_BLOCK}}`);
    const fewer = this.#rule('fewer', `${symbol}{0,${REPEAT_BLOCK - 1}}`);
    let rule = this.#rule('upto', `${symbol}{0,${times % REPEAT_BLOCK}}`);
    for (let left = Math.floor(times / REPEAT_BLOCK); left > 0; left--)
      rule = this.#rule('upto', `${block} ${rule} | ${fewer}`);
    return rule;
  }

  #integer(node: JsonSchema, path: string): string {
    const range = integerRange(node);
    if (range === null) return this.#shared('integer');
    if (typeof range === 'string') return this.#rule('integer', range);
    return refuse(path, `bounds an integer by ${range.keyword} in a way that cannot be enforced`);
  }

  #number(node: JsonSchema, path: string): string {
    const range = integerRange(node);
    if (range === null) return this.#shared('number');
    if ('exclusiveMinimum' in node || 'exclusiveMaximum' in node)
      return refuse(path, 'bounds a number exclusively, which cannot be enforced');
    if (node.minimum === 0 && node.maximum === undefined)
      return this.#rule('number', `("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})?`);
    if (node.minimum === 0 && node.maximum === 1) return this.#rule('number', `"0" ("." [0-9]{1,16})? | "1" (".0")?`);
    return refuse(path, 'bounds a number in a way that cannot be enforced; only "at least 0" and "0 to 1" can');
  }

  #enumeration(node: JsonSchema, path: string): string {
    const values = list(node.enum, `${path}/enum`);
    if (values.length === 0) refuse(`${path}/enum`, 'is empty');
    return this.#only(node, path, ['enum', 'type'], `(${values.map(literal).join(' | ')})`);
  }

  #alternatives(node: JsonSchema, keyword: 'oneOf' | 'anyOf', path: string): string {
    const parts = list(node[keyword], `${path}/${keyword}`);
    if (parts.length === 0) refuse(`${path}/${keyword}`, 'is empty');
    const values = parts.map((part, i) => this.#value(part, `${path}/${keyword}/${i}`));
    return this.#only(node, path, [keyword, 'type', 'discriminator'], `(${values.join(' | ')})`);
  }

  #reference(node: JsonSchema, path: string): string {
    checkKeywords(node, path, ['$ref']);
    const pointer = String(node.$ref);
    const known = this.#references.get(pointer);
    if (known !== undefined) return known;
    const rule = `ref${this.#next++}`;
    // Registered first: the definition may contain itself.
    this.#references.set(pointer, rule);
    this.#rules.set(rule, this.#value(resolvePointer(this.#root, pointer, path), pointer));
    return rule;
  }

  #only(node: JsonSchema, path: string, keywords: readonly string[], expression: string): string {
    checkKeywords(node, path, keywords);
    return expression;
  }

  #rule(hint: string, body: string): string {
    const name = `${hint}-${this.#next++}`;
    this.#rules.set(name, body);
    return name;
  }

  #shared(name: string): string {
    const body = SHARED_RULES[name];
    if (body !== undefined && !this.#rules.has(name)) {
      this.#rules.set(name, body);
      for (const used of SHARED_USES[name] ?? []) this.#shared(used);
    }
    return name;
  }
}

const TYPE_KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
};

function refuse(path: string, reason: string): never {
  throw new MassError('invalid_input', `The JSON schema cannot be enforced: ${path} ${reason}.`, { details: { path } });
}

function checkKeywords(node: JsonSchema, path: string, known: readonly string[]): void {
  for (const keyword of Object.keys(node))
    if (!ANNOTATIONS.has(keyword) && !known.includes(keyword))
      throw new MassError(
        'invalid_input',
        `The JSON schema cannot be enforced: the keyword ${JSON.stringify(keyword)} at ${path} is not supported.`,
        { details: { path, keyword } },
      );
}

function inferType(node: JsonSchema): string | null {
  for (const [type, keywords] of Object.entries(TYPE_KEYWORDS))
    if (type !== 'integer' && keywords.some((keyword) => keyword in node)) return type;
  return null;
}

function list(value: unknown, path: string): unknown[] {
  return Array.isArray(value) ? value : refuse(path, 'is not a list');
}

function record(value: unknown, path: string): JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonSchema)
    : refuse(path, 'is not an object');
}

function count(value: unknown, path: string): number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0
    ? value
    : refuse(path, 'is not a whole number');
}

function resolvePointer(root: JsonSchema, pointer: string, path: string): unknown {
  if (pointer === '#') return root;
  if (!pointer.startsWith('#/')) return refuse(path, `refers to ${pointer}, which is outside the schema`);
  let at: unknown = root;
  for (const part of pointer.slice(2).split('/')) {
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key))
      return refuse(path, `refers to ${pointer}, which does not exist`);
    at = (at as Record<string, unknown>)[key];
  }
  return at;
}

/** A JSON value written out; spaces inside objects and arrays as `JSON.stringify` has them: none. */
const literal = (value: unknown): string => quoted(JSON.stringify(value));

/** A GBNF string: only backslash, quote and control characters need escapes, and JSON text has no raw control characters. */
const quoted = (text: string): string => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
