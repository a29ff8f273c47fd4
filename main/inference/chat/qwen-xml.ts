import type { ToolDefinition } from '../../common/domain/chat.ts';
import type { CompletionParser, ParserState } from './chat-format.ts';
import { PlainBody, ReasoningThenBody } from './completion-parser.ts';
import { isJsonObject, parseJson } from './json-object.ts';
import { type BlockReading, ToolCallBlocks } from './tool-call-blocks.ts';

/**
 * Calls as `<tool_call>\n<function=NAME>\n<parameter=ARG>\nVALUE\n</parameter>\n</function>\n</tool_call>` (Qwen3.5 and
 * 3.6, Qwen3-Coder). Values are typed by the tool's parameter schema: strings as they stand, the rest as JSON.
 */
export function qwenXmlParser(state: ParserState): CompletionParser {
  const tools = state.tools ?? [];
  return new ReasoningThenBody(state, (sink) =>
    tools.length > 0 ? new ToolCallBlocks(sink, (inside) => readXmlCall(inside, tools)) : new PlainBody(sink),
  );
}

const functionHead = /^\s*<function=([^<>\n]+)>/;
const parameterHead = /\s*<parameter=([^<>\n]+)>\n?/y;
const tail = /\s*<\/function>\s*$/y;
/** A value may contain `</parameter>`; it ends where the next parameter or the function's end follows. */
const valueEnd = /\n?<\/parameter>(?=\s*(?:<parameter=[^<>\n]+>|<\/function>))/g;

export function readXmlCall(inside: string, tools: readonly ToolDefinition[]): BlockReading {
  const head = functionHead.exec(inside);
  const name = head?.[1]?.trim() ?? '';
  if (head === null || name === '') return { kind: 'malformed' };
  const schemas = parameterSchemas(tools.find((tool) => tool.name === name));
  const values: [string, unknown][] = [];
  let at = head[0].length;
  for (;;) {
    parameterHead.lastIndex = at;
    const parameter = parameterHead.exec(inside);
    if (parameter === null) break;
    at = parameterHead.lastIndex;
    // Right after the head, an empty value has no line of its own.
    valueEnd.lastIndex = at;
    const end = valueEnd.exec(inside);
    if (end === null) return { kind: 'unfinished' };
    const key = parameter[1]?.trim() ?? '';
    values.push([key, typedValue(inside.slice(at, end.index), schemas[key])]);
    at = end.index + end[0].length;
  }
  tail.lastIndex = at;
  if (!tail.test(inside)) return { kind: 'malformed' };
  return { kind: 'call', name, arguments: Object.fromEntries(values) };
}

function parameterSchemas(tool: ToolDefinition | undefined): Readonly<Record<string, unknown>> {
  const properties = tool?.parameters.properties;
  return isJsonObject(properties) ? { ...properties } : {};
}

/** A value that does not fit its schema stays the text it is: whoever executes the call says so to the model. */
function typedValue(text: string, schema: unknown): unknown {
  const types = schemaTypes(schema);
  if (types.size === 0 || types.has('string')) return types.has('null') && text === 'null' ? null : text;
  const trimmed = text.trim();
  const word = trimmed.toLowerCase();
  if (types.has('boolean') && (word === 'true' || word === 'false')) return word === 'true';
  if (types.has('null') && (word === 'null' || word === 'none')) return null;
  return parseJson(trimmed) ?? text;
}

/** Types a schema allows; empty when it does not say. */
function schemaTypes(schema: unknown): Set<string> {
  if (!isJsonObject(schema)) return new Set();
  const { type, anyOf, oneOf, enum: values } = schema;
  if (typeof type === 'string') return new Set([type]);
  if (Array.isArray(type)) return new Set(type.filter((item) => typeof item === 'string'));
  if (Array.isArray(values)) return new Set(values.map((value) => (value === null ? 'null' : typeof value)));
  const variants = Array.isArray(anyOf) ? anyOf : Array.isArray(oneOf) ? oneOf : [];
  return new Set(variants.flatMap((variant) => [...schemaTypes(variant)]));
}
