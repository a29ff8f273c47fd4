import { parseWorkflow, type Workflow, type WorkflowAgent, type WorkflowHop } from './workflow-parse.ts';

export interface WorkflowDiffInput {
  readonly before: string;
  readonly after: string;
  /** characters (UTF-16 units) the diff may have */
  readonly limit: number;
}

/** Sizes of a design diff in a proposer prompt: the newest three comparisons, and older ones (arXiv 2610.12176). */
export const DIFF_CHARACTERS = { newest: 1500, newestCount: 3, older: 400 } as const;

/** A line of the diff: added (before null), removed (after null) or changed. */
interface Change {
  readonly label: string;
  readonly before: string | null;
  readonly after: string | null;
}

/** Excerpt lengths tried from long to short until every change fits. */
const EXCERPTS = [600, 300, 150, 80, 40, 20];
const CONTEXT = 12;

/**
 * What changed between two workflow blocks, one line a change, for a model to read: agents first (role, instruction,
 * contract), then hops, then text the view has no place for. Excerpts show the changed part only. Deterministic, at
 * most `limit` characters; changes that do not fit are counted at the end.
 */
export function diffWorkflows({ before, after, limit }: WorkflowDiffInput): string {
  if (before === after) return clip('(no change)', limit);
  const changes = changesBetween(before, after);
  if (changes.length === 0) return clip('(layout only)', limit);
  for (const excerpt of EXCERPTS) {
    const text = changes.map((change) => lineOf(change, excerpt)).join('\n');
    if (text.length <= limit) return text;
  }
  return cutLines(
    changes.map((change) => lineOf(change, EXCERPTS[EXCERPTS.length - 1] ?? 0)),
    limit,
  );
}

function changesBetween(before: string, after: string): Change[] {
  const [old, fresh] = [parseWorkflow(before), parseWorkflow(after)];
  if (old.agents.length === 0 || fresh.agents.length === 0) return [{ label: 'text', before, after }];
  return [...agentChanges(old.agents, fresh.agents), ...hopChanges(old.hops, fresh.hops), ...otherChanges(old, fresh)];
}

function agentChanges(old: readonly WorkflowAgent[], fresh: readonly WorkflowAgent[]): Change[] {
  const [earlier, later] = [byKey(old, (a) => a.id), byKey(fresh, (a) => a.id)];
  const changes: Change[] = [];
  for (const [key, agent] of earlier) {
    const now = later.get(key);
    if (!now) {
      changes.push({ label: `- agent ${agent.id}`, before: agent.role, after: null });
      continue;
    }
    for (const part of ['role', 'instruction', 'contract'] as const)
      if (agent[part] !== now[part])
        changes.push({ label: `~ agent ${agent.id} ${part}`, before: agent[part], after: now[part] });
  }
  for (const [key, { id, role, instruction, contract }] of later)
    if (!earlier.has(key))
      changes.push({ label: `+ agent ${id}`, before: null, after: [role, instruction, contract ?? ''].join(' | ') });
  return [...changes, ...orderChange('agent order', [...earlier.keys()], [...later.keys()])];
}

function hopChanges(old: readonly WorkflowHop[], fresh: readonly WorkflowHop[]): Change[] {
  const route = (hop: WorkflowHop): string => `${hop.from} -> ${hop.to}`;
  const said = (hop: WorkflowHop): string => (hop.recall ? `(recall) ${hop.what}` : hop.what);
  const [earlier, later] = [byKey(old, route), byKey(fresh, route)];
  const changes: Change[] = [];
  for (const [key, hop] of earlier) {
    const now = later.get(key);
    if (!now) changes.push({ label: `- hop ${route(hop)}`, before: said(hop), after: null });
    else if (said(hop) !== said(now))
      changes.push({ label: `~ hop ${route(hop)}`, before: said(hop), after: said(now) });
  }
  for (const [key, hop] of later)
    if (!earlier.has(key)) changes.push({ label: `+ hop ${route(hop)}`, before: null, after: said(hop) });
  return [...changes, ...orderChange('hop order', [...earlier.keys()], [...later.keys()])];
}

function otherChanges(old: Workflow, fresh: Workflow): Change[] {
  const text = ({ unrecognised }: Workflow): string =>
    unrecognised.map(({ path, text: part }) => (path === '' ? part.trim() : `${path}: ${part}`)).join('\n');
  return text(old) === text(fresh) ? [] : [{ label: '~ other text', before: text(old), after: text(fresh) }];
}

/** Said only when both hold the same things, in another order. */
function orderChange(label: string, old: readonly string[], fresh: readonly string[]): Change[] {
  const kept = new Set(fresh);
  const same = old.length === fresh.length && old.every((key) => kept.has(key));
  if (!same || old.every((key, i) => key === fresh[i])) return [];
  return [{ label: `~ ${label}`, before: old.join(', '), after: fresh.join(', ') }];
}

/** Items by key; a repeated key gets its occurrence number, so that the second "a -> b" meets the second one. */
function byKey<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T> {
  const seen = new Map<string, number>();
  const keyed = new Map<string, T>();
  for (const item of items) {
    const key = keyOf(item);
    const count = (seen.get(key) ?? 0) + 1;
    seen.set(key, count);
    keyed.set(count === 1 ? key : `${key} #${count}`, item);
  }
  return keyed;
}

function lineOf({ label, before, after }: Change, excerpt: number): string {
  const name = clip(oneLine(label), 120);
  if (before === null || after === null) {
    const text = oneLine(after ?? before ?? '');
    const sign = /^[+-]/.test(name) ? '' : after === null ? '(removed) ' : '(new) ';
    return text === '' ? name : `${name}: ${sign}${clip(text, excerpt)}`;
  }
  const [was, is] = changedParts(oneLine(before), oneLine(after));
  return `${name}: "${clip(was, excerpt)}" -> "${clip(is, excerpt)}"`;
}

/** Both texts without what they share at their ends, but for a little context. */
function changedParts(before: string, after: string): [string, string] {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < shorter - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  const from = wholeCharacter(before, head > CONTEXT + 1 ? head - CONTEXT : 0);
  const cutTail = tail > CONTEXT + 1 ? tail - CONTEXT : 0;
  const part = (text: string): string => {
    const to = wholeCharacter(text, text.length - cutTail);
    return `${from > 0 ? '…' : ''}${text.slice(from, to)}${to < text.length ? '…' : ''}`;
  };
  return [part(before), part(after)];
}

const oneLine = (text: string): string => text.replace(/\s+/g, ' ').trim();

/** The index, or one less where it would split a surrogate pair. */
function wholeCharacter(text: string, index: number): number {
  const code = text.charCodeAt(index);
  return index > 0 && code >= 0xdc00 && code <= 0xdfff ? index - 1 : index;
}

/** At most `limit` units, "…" included where something is missing; never half a character. */
function clip(text: string, limit: number): string {
  if (text.length <= limit) return text;
  return limit < 1 ? '' : `${text.slice(0, wholeCharacter(text, limit - 1))}…`;
}

/** As many whole lines as fit beside a last line that counts the rest. */
function cutLines(lines: readonly string[], limit: number): string {
  for (let kept = lines.length - 1; kept > 0; kept--) {
    const text = [...lines.slice(0, kept), `(+${lines.length - kept} more)`].join('\n');
    if (text.length <= limit) return text;
  }
  return clip(lines[0] ?? '', limit);
}
