import { MassError } from '../base/errors.ts';
import { MAX_BLOCK_BYTES, parseWorkflow } from './workflow-parse.ts';

export {
  MAX_BLOCK_BYTES,
  parseWorkflow,
  type Workflow,
  type WorkflowAgent,
  type WorkflowHop,
} from './workflow-parse.ts';

/** Lines that enclose the workflow block in a prompt. A line counts only when it is exactly the marker. */
export interface Markers {
  readonly start: string;
  readonly end: string;
}

export const START_MARKER = '<<< TEAM WORKFLOW';
export const END_MARKER = 'TEAM WORKFLOW >>>';
export const OWN_MARKERS: Markers = { start: START_MARKER, end: END_MARKER };

export interface TeacherPromptParts {
  readonly barePrompt: string;
  readonly block: string;
  /** execution directive of the collect stage */
  readonly directive?: string;
}

/**
 * The teacher prompt: the bare prompt byte for byte, the block between marker lines, then the directive.
 * `findBlock` gives exactly `block` back. Errors: `invalid_input` when a part holds a marker line, or the block ends
 * with a lone carriage return, which would merge with the line end that follows.
 */
export function composeTeacherPrompt({ barePrompt, block, directive = '' }: TeacherPromptParts): string {
  assertNoMarker(barePrompt, 'The bare prompt', OWN_MARKERS);
  assertNoMarker(directive, 'The execution directive', OWN_MARKERS);
  assertPlaceable(block, OWN_MARKERS);
  const gap = barePrompt === '' ? '' : barePrompt.endsWith('\n') ? '\n' : '\n\n';
  const tail = directive === '' ? '' : `\n${directive}`;
  return `${barePrompt}${gap}${START_MARKER}\n${block}\n${END_MARKER}\n${tail}`;
}

export interface FoundBlock {
  /** up to and with the start marker's line end */
  readonly before: string;
  readonly block: string;
  /** from the line end before the end marker on; before + block + after is the prompt */
  readonly after: string;
}

/**
 * The one block of a prompt. Line ends may be LF or CRLF. Errors: `invalid_input` with `details.reason`
 * "missing_start", "missing_end", "several" or "reversed".
 */
export function findBlock(prompt: string, markers: Markers = OWN_MARKERS): FoundBlock {
  const lines = markerLines(prompt, markers);
  const same = markers.start === markers.end;
  const starts = same ? lines.slice(0, 1) : lines.filter((l) => l.text === markers.start);
  const ends = same ? lines.slice(1) : lines.filter((l) => l.text === markers.end);
  const [start] = starts;
  const [end] = ends;
  if (!start) throw blockError('missing_start', `has no line "${markers.start}"`);
  if (!end) throw blockError('missing_end', `has no line "${markers.end}"`);
  if (starts.length > 1 || ends.length > 1) throw blockError('several', 'has more than one workflow block');
  if (end.from < start.next) throw blockError('reversed', `has "${markers.end}" before "${markers.start}"`);
  const separator = prompt.slice(start.next, end.from).match(/\r?\n$/)?.[0].length ?? 0;
  const stop = end.from - separator;
  return {
    before: prompt.slice(0, start.next),
    block: prompt.slice(start.next, stop),
    after: prompt.slice(stop),
  };
}

/**
 * The prompt with another block; every byte outside the block stays. Only when the old block is empty and has no line
 * of its own is a line end added after the new one. Errors: those of `findBlock` and `composeTeacherPrompt`.
 */
export function replaceBlock(prompt: string, block: string, markers: Markers = OWN_MARKERS): string {
  assertPlaceable(block, markers);
  const { before, after } = findBlock(prompt, markers);
  const hasLineEnd = /^\r?\n/.test(after);
  const lineEnd = hasLineEnd || block === '' ? '' : before.endsWith('\r\n') ? '\r\n' : '\n';
  return `${before}${block}${lineEnd}${after}`;
}

export interface BlockProblem {
  readonly code: 'empty' | 'too_large' | 'contains_marker' | 'not_text' | 'no_json' | 'no_agents' | 'duplicate_agent';
  /** one sentence the proposer can act on */
  readonly message: string;
}

/** Why a proposed block cannot be used, all reasons at once; empty when it can. Never throws. */
export function validateBlock(block: string, markers: Markers = OWN_MARKERS): BlockProblem[] {
  if (block.trim() === '')
    return [{ code: 'empty', message: 'The workflow block is empty; return the whole block, not only the changes.' }];
  const bytes = utf8Bytes(block);
  if (bytes > MAX_BLOCK_BYTES) {
    const message = `The workflow block has ${bytes} bytes and may have ${MAX_BLOCK_BYTES}; shorten instructions and contracts.`;
    return [{ code: 'too_large', message }];
  }
  return [...textProblems(block, markers), ...teamProblems(block)];
}

function textProblems(block: string, markers: Markers): BlockProblem[] {
  const problems: BlockProblem[] = [];
  if (markerLines(block, markers).length > 0) {
    const message = `The block contains the line "${markers.start}" or "${markers.end}"; return only what stands between them.`;
    problems.push({ code: 'contains_marker', message });
  }
  if (/\p{Surrogate}/u.test(block) || block.endsWith('\r'))
    problems.push({ code: 'not_text', message: 'The block contains broken characters; return plain UTF-8 text.' });
  return problems;
}

function teamProblems(block: string): BlockProblem[] {
  const { parsed, agents } = parseWorkflow(block);
  if (!parsed)
    return [
      { code: 'no_json', message: 'The block holds no JSON that parses; return {"agents": [...], "hops": [...]}.' },
    ];
  if (agents.length === 0)
    return [
      {
        code: 'no_agents',
        message: 'The block names no agent; give at least one with agent_id, role and instruction.',
      },
    ];
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const { id } of agents) (seen.has(id) ? repeated : seen).add(id);
  return [...repeated].map((id) => ({
    code: 'duplicate_agent',
    message: `Two agents are called ${JSON.stringify(id)}; give each an agent_id of its own.`,
  }));
}

interface Line {
  readonly text: string;
  readonly from: number;
  /** where the next line begins */
  readonly next: number;
}

/** Lines that are exactly a marker, without their line end. */
function markerLines(text: string, { start, end }: Markers): Line[] {
  const found: Line[] = [];
  for (let from = 0; from < text.length; ) {
    const newline = text.indexOf('\n', from);
    const next = newline < 0 ? text.length : newline + 1;
    const line = text.slice(from, newline < 0 ? next : newline).replace(/\r$/, '');
    if (line === start || line === end) found.push({ text: line, from, next });
    from = next;
  }
  return found;
}

function assertNoMarker(text: string, what: string, markers: Markers): void {
  if (markerLines(text, markers).length === 0) return;
  throw new MassError(
    'invalid_input',
    `${what} contains a line "${markers.start}" or "${markers.end}"; reword that line, these mark the workflow block.`,
  );
}

function assertPlaceable(block: string, markers: Markers): void {
  assertNoMarker(block, 'The workflow block', markers);
  if (block.endsWith('\r'))
    throw new MassError('invalid_input', 'The workflow block ends with a lone carriage return; remove it.');
}

function blockError(reason: string, what: string): MassError {
  return new MassError('invalid_input', `The prompt ${what}; it must hold exactly one workflow block.`, {
    details: { reason },
  });
}

/** Length in UTF-8; a lone surrogate counts as the three bytes it is replaced by. */
function utf8Bytes(text: string): number {
  let bytes = 0;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}
