import type { CompletionParser, ParserState } from './chat-format.ts';
import { PlainBody, ReasoningThenBody } from './completion-parser.ts';
import { isJsonObject, parseJson, parseObject } from './json-object.ts';
import { type BlockReading, ToolCallBlocks } from './tool-call-blocks.ts';

/** Calls as `<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>` (Qwen2.5, Qwen3, Hermes). */
export function hermesParser(state: ParserState): CompletionParser {
  const parsesCalls = (state.tools ?? []).length > 0;
  return new ReasoningThenBody(state, (sink) =>
    parsesCalls ? new ToolCallBlocks(sink, readHermesCall) : new PlainBody(sink),
  );
}

export function readHermesCall(inside: string): BlockReading {
  const value = parseJson(inside);
  if (value === undefined) return endsInsideString(inside) ? { kind: 'unfinished' } : { kind: 'malformed' };
  if (!isJsonObject(value) || typeof value.name !== 'string' || value.name === '') return { kind: 'malformed' };
  const given = value.arguments ?? {};
  const args = typeof given === 'string' ? parseObject(given) : given;
  return isJsonObject(args) ? { kind: 'call', name: value.name, arguments: args } : { kind: 'malformed' };
}

/** A closing tag inside a JSON string does not end the block. */
function endsInsideString(json: string): boolean {
  let inside = false;
  for (let i = 0; i < json.length; i++) {
    if (inside && json[i] === '\\') i++;
    else if (json[i] === '"') inside = !inside;
  }
  return inside;
}
