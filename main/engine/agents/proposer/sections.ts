import type { Truncation } from '../evidence/cut.ts';
import { cutLine } from '../evidence/cut.ts';
import { defuse, defuseLines, defuseTokens, showInvisible } from '../evidence/escape.ts';
import { fence } from '../evidence/fence.ts';
import { cutText, type FittedText } from '../evidence/fit-text.ts';
import { evidenceRenderer } from '../evidence/render.ts';
import type { BlockTools, Comparison, HistoryEntry, ProposerInputs } from './proposer-inputs.ts';
import { recurringIssues } from './recurring-issues.ts';

/** A part of the proposer's prompt that can be shown at any length. */
export interface Section {
  readonly slot: string;
  /** characters at which nothing is cut */
  readonly need: number;
  readonly weight: number;
  readonly render: (room: number) => FittedText;
}

const whole = (text: string): FittedText => ({ text, complete: true, truncations: [] });
const none = (slot: string): Section => ({ slot, need: 0, weight: 0, render: () => whole('none') });

const fenced = (label: string, cut: FittedText): FittedText => ({ ...cut, text: fence(label, cut.text).text });

/** Characters of the two fence lines, at most. */
const FENCE_ROOM = 80;

function textSection(options: { slot: string; what: string; text: string; weight: number; label?: string }): Section {
  const { slot, what, weight, label } = options;
  // Without a label the text is the task's or a person's: shown as it is.
  const text = label === undefined ? options.text : defuseTokens(showInvisible(options.text));
  const defused = label === undefined ? (part: string) => part : defuseLines;
  const frame = label === undefined ? 0 : FENCE_ROOM;
  return {
    slot,
    need: text.length + frame,
    weight,
    render: (room) => {
      const cut = cutText(text, { room: room - frame, what, defused });
      return label === undefined ? cut : fenced(label, cut);
    },
  };
}

/** Whole entries as long as they fit, the first at least in part; the rest counted. */
function entrySection(options: {
  slot: string;
  what: string;
  entries: readonly string[];
  weight: number;
  label: string;
}): Section {
  const { slot, what, entries, weight, label } = options;
  if (entries.length === 0) return none(slot);
  const need = entries.reduce((sum, entry) => sum + entry.length + 1, 0) + FENCE_ROOM;
  const render = (room: number): FittedText => {
    if (room >= need) return fenced(label, whole(entries.join('\n')));
    const kept: string[] = [];
    const truncations: Truncation[] = [];
    let left = room - FENCE_ROOM - 60;
    for (const entry of entries) {
      if (entry.length + 1 > left) break;
      kept.push(entry);
      left -= entry.length + 1;
    }
    const shown = kept.length;
    const next = entries[shown];
    if (next !== undefined && left >= 160) {
      const part = cutText(next, { room: left, what: `${what} (in part)`, defused: defuseLines });
      kept.push(part.text);
      truncations.push(...part.truncations);
    }
    truncations.push({ what, unit: 'entries', shown, total: entries.length });
    const text = [...kept, cutLine(shown, entries.length, 'entries')].join('\n');
    return fenced(label, { text, complete: false, truncations });
  };
  return { slot, need, weight, render };
}

/** All sections, the most important first: room that one does not need goes to the next in this order. */
export function proposerSections(inputs: ProposerInputs, tools: BlockTools): Section[] {
  const { current, best, initialBlock } = inputs;
  const evidence = evidenceRenderer(inputs.evidence);
  const issues = recurringIssues(inputs.history).map(
    ({ issue, versions }) => `- ${defuse(issue)} (versions ${versions.join(', ')})`,
  );
  return [
    inputs.feedback?.trim()
      ? textSection({ slot: 'feedback', what: 'feedback', text: inputs.feedback.trim(), weight: 2 })
      : none('feedback'),
    textSection({
      slot: 'current',
      what: 'current plan',
      text: current.block.trim(),
      weight: 5,
      label: 'CURRENT PLAN',
    }),
    textSection({ slot: 'task', what: 'task', text: inputs.barePrompt.trim(), weight: 4 }),
    entrySection({ slot: 'issues', what: 'recurring defects', entries: issues, weight: 1, label: 'DEFECTS' }),
    {
      slot: 'evidence',
      need: evidence.fullCharacters + FENCE_ROOM,
      weight: 5,
      render: (room) => fenced('WORKSPACE', evidence.render(Math.max(0, room - FENCE_ROOM))),
    },
    historySection(inputs, tools),
    best === null
      ? { slot: 'best', need: 0, weight: 0, render: () => whole('the current plan') }
      : textSection({
          slot: 'best',
          what: 'best plan',
          text: `Version ${best.version}. Why judges preferred it: ${best.reasons.trim() || 'not recorded'}\n${best.block.trim()}`,
          weight: 3,
          label: 'BEST PLAN',
        }),
    callSection(inputs),
    current.version === 0
      ? { slot: 'initial', need: 0, weight: 0, render: () => whole('the current plan') }
      : textSection({ slot: 'initial', what: 'first plan', text: initialBlock.trim(), weight: 1, label: 'FIRST PLAN' }),
  ];
}

function callSection(inputs: ProposerInputs): Section {
  const entries = [...inputs.lastToolCalls].reverse().map((call) => {
    const part = (text: string, room: number): string =>
      cutText(defuseTokens(showInvisible(text)), { room, what: '', defused: defuseLines }).text;
    const head = defuse(`${call.thread} ${call.name}`);
    return `${head} ${part(call.arguments, 240)}\n  gave: ${part(call.result, 360)}`;
  });
  return entrySection({ slot: 'calls', what: 'tool calls', entries, weight: 1.5, label: 'CALLS' });
}

/** Newest versions in detail, older ones in brief: characters of a design's difference (1,500 and 400 as in the paper). */
const NEWEST = 3;
const DETAIL = { newest: { diff: 1500, rationale: 700 }, older: { diff: 400, rationale: 240 } } as const;

function historySection(inputs: ProposerInputs, tools: BlockTools): Section {
  const newestFirst = [...inputs.history].sort((a, b) => b.version - a.version);
  const blocks = new Map(inputs.history.map(({ version, block }) => [version, block]));
  const entries = newestFirst.map((entry, index) => {
    const before = entry.basedOn === null ? null : (blocks.get(entry.basedOn) ?? null);
    return entryText(entry, { before, tools, detail: index < NEWEST ? DETAIL.newest : DETAIL.older });
  });
  return entrySection({ slot: 'history', what: 'versions', entries, weight: 4, label: 'HISTORY' });
}

function entryText(
  entry: HistoryEntry,
  options: { before: string | null; tools: BlockTools; detail: { diff: number; rationale: number } },
): string {
  const { before, tools, detail } = options;
  const origin = entry.basedOn === null ? 'first plan' : `from version ${entry.basedOn}`;
  if (entry.block === null) return `Version ${entry.version} (${origin}): the proposal could not be used.`;
  const there = entry.deliverables.filter(({ status }) => status === 'present').length;
  const ended = entry.ending === null ? 'not executed' : describeEnding(entry);
  const lines = [
    `Version ${entry.version} (${origin}): ${ended}; ${there} of ${entry.deliverables.length} deliverables.`,
  ];
  for (const comparison of entry.comparisons) lines.push(comparisonText(comparison, detail.rationale));
  if (before !== null) lines.push('Changed:', defuse(tools.diff(before, entry.block, detail.diff)));
  return lines.join('\n');
}

const describeEnding = ({ ending }: HistoryEntry): string =>
  ending?.outcome === 'halted' ? `halted (${ending.haltReason ?? 'unknown'})` : 'completed';

function comparisonText({ against, result, valid, rationale }: Comparison, room: number): string {
  const mark = valid ? '' : ' (no usable verdict)';
  const safe = defuseTokens(showInvisible(rationale.trim()));
  const reasons = cutText(safe, { room, what: '', defused: defuseLines }).text;
  return `- ${result} against ${against}${mark}: ${reasons}`;
}
