import { MassError } from '../../../common/base/errors.ts';
import { allocate, type CountTokens, fitToTokens } from './budget.ts';
import type { DeliverableCheck, EvidenceBundle, Excerpt, TreeEntry } from './bundle.ts';
import { cutLine, cutLines, cutMiddle, type Truncation, takeStart, thousands } from './cut.ts';
import { CUT_MARK, defuse, defuseLines, defuseTokens, escapeName, FILE_MARK, showInvisible } from './escape.ts';

export interface RenderedEvidence {
  readonly text: string;
  /** nothing the bundle holds was left out */
  readonly complete: boolean;
  readonly truncations: readonly Truncation[];
}

/** Shares of the excerpts' room; what a class does not need flows to the others, reports and metrics first. */
const classWeights = { report: 8, metrics: 5, code: 5, test: 1.5, other: 1.5 } as const;
/** A file with less room than this is named instead of shown. */
const LEAST_EXCERPT = 120;

/**
 * A bundle as text of at most `maxTokens`. Cuts are made where they cost least (report and metrics last), each is
 * marked in the text and listed in `truncations`. Nothing in the text can pass for a frame line or a chat token.
 * Errors: `invalid_input` when not even the list of counts fits.
 */
export async function renderEvidence(
  bundle: EvidenceBundle,
  options: { readonly maxTokens: number; readonly countTokens: CountTokens },
): Promise<RenderedEvidence & { tokens: number }> {
  const renderer = evidenceRenderer(bundle);
  const fit = await fitToTokens({ ...renderer, ...options });
  if (fit !== null) return { ...fit.rendering, tokens: fit.tokens };
  throw new MassError(
    'invalid_input',
    `Evidence cannot be shown in ${options.maxTokens} tokens; lower the output tokens of the call or raise the context size.`,
  );
}

/** The synchronous core, for callers that share one budget between several texts. */
export function evidenceRenderer(bundle: EvidenceBundle): {
  render: (characters: number) => RenderedEvidence;
  fullCharacters: number;
} {
  const parts = prepare(bundle);
  const overview = parts.deliverables.join('').length + parts.tree.join('').length + parts.ending.length;
  const contents = parts.files.reduce((sum, file) => sum + fileNeed(file), 0);
  const lines = parts.deliverables.length + parts.tree.length;
  return { render: (characters) => renderParts(parts, characters), fullCharacters: overview + contents + lines + 600 };
}

interface FilePart {
  readonly source: Excerpt;
  readonly name: string;
  readonly text: string;
}

interface Parts {
  readonly bundle: EvidenceBundle;
  readonly ending: string;
  readonly deliverables: readonly string[];
  readonly tree: readonly string[];
  readonly files: readonly FilePart[];
}

const bytesText = (bytes: number): string => `${thousands(bytes)} bytes`;
const safeName = (path: string): string => defuseTokens(path);

function prepare(bundle: EvidenceBundle): Parts {
  const { outcome, haltReason, ending } = bundle.ending;
  const how = haltReason === null ? outcome : `${outcome} (${haltReason})`;
  const sentence = takeStart(ending, 240);
  const cut = sentence.length < ending.length ? ` ${cutLine(sentence.length, ending.length, 'characters')}` : '';
  const files = bundle.excerpts.map((source) => {
    const gap = source.unreadBytes === 0 ? '' : `\n[${bytesText(source.unreadBytes)} in between were not read]\n`;
    const text = defuseTokens(showInvisible(source.head + gap + source.tail));
    return { source, name: safeName(source.path), text };
  });
  return {
    bundle,
    ending: `Ended: ${how}. ${escapeName(defuse(sentence))}${cut}`,
    deliverables: bundle.deliverables.map(deliverableLine),
    tree: bundle.tree.entries.map(treeLine),
    files,
  };
}

function deliverableLine(check: DeliverableCheck): string {
  const size = check.bytes === null ? '' : `, ${bytesText(check.bytes)}`;
  const facts = check.facts.map((fact) => `; ${fact}`).join('');
  return `- ${safeName(escapeName(check.path))} (${check.kind}): ${check.status}${size}${facts}`;
}

function treeLine(entry: TreeEntry): string {
  const notes = [
    entry.type === 'file' ? bytesText(entry.bytes ?? 0) : `${entry.type}, not followed`,
    ...(entry.entries === undefined ? [] : [`${thousands(entry.entries)} entries`]),
    ...(entry.image ? [`${entry.image.width}x${entry.image.height} pixels`] : []),
    ...(entry.provided ? ['provided'] : []),
  ];
  return `- ${safeName(entry.path)}: ${notes.join(', ')}`;
}

function renderParts(parts: Parts, characters: number): RenderedEvidence {
  const { bundle } = parts;
  const truncations: Truncation[] = [];
  const lengthOf = (lines: readonly string[]): number => lines.reduce((sum, line) => sum + line.length + 1, 0);
  const frame = parts.ending.length + 240;
  const contents = parts.files.reduce((sum, file) => sum + fileNeed(file), 0);
  const room = Math.max(0, characters - frame);
  const [deliverableRoom = 0, treeRoom = 0, fileRoom = 0] = allocate(room, [
    { need: lengthOf(parts.deliverables), weight: 3 },
    { need: lengthOf(parts.tree), weight: 1.5 },
    { need: contents, weight: 6 },
  ]);
  const list = (title: string, what: string, lines: readonly string[], space: number): string[] => {
    const cut = cutLines(lines, space, 'entries');
    if (cut.shown < lines.length) truncations.push({ what, unit: 'entries', shown: cut.shown, total: lines.length });
    return [title, ...cut.lines];
  };
  const { tree } = bundle;
  const bound = tree.complete ? '' : 'more than ';
  const omitted =
    tree.omitted === 0 && tree.complete
      ? []
      : [`${CUT_MARK} ${bound}${thousands(tree.omitted)} further entries not listed]`];
  if (omitted.length > 0)
    truncations.push({
      what: 'file list',
      unit: 'entries',
      shown: tree.entries.length,
      total: tree.entries.length + tree.omitted,
    });
  const treeTitle = `Files (${bound}${thousands(tree.files)}, ${bytesText(tree.bytes)}):`;
  const lines = [
    parts.ending,
    ...list('Deliverables, checked by program:', 'deliverables', parts.deliverables, deliverableRoom),
    ...list(treeTitle, 'file list', parts.tree, treeRoom),
    ...omitted,
    ...renderFiles(parts, fileRoom, truncations),
  ];
  return { text: lines.join('\n'), complete: truncations.length === 0, truncations };
}

const headerRoom = 72;
const fileNeed = (file: FilePart): number => file.text.length + file.name.length + headerRoom;

/** Rooms of all files: by class weight, then within a class the deliverable and the first paths first, fairly. */
function roomsOf(files: readonly FilePart[], room: number): number[] {
  const classes = Object.keys(classWeights) as (keyof typeof classWeights)[];
  const members = classes.map((name) => files.filter(({ source }) => source.class === name));
  const shares = allocate(
    room,
    classes.map((name, index) => ({
      need: (members[index] ?? []).reduce((sum, file) => sum + fileNeed(file), 0),
      weight: classWeights[name],
    })),
  );
  const rooms = new Map<FilePart, number>();
  for (const [index, group] of members.entries()) {
    // Many files in little room: the first ones get a readable part rather than all an unreadable one.
    const shown = group.slice(0, Math.max(1, Math.floor((shares[index] ?? 0) / (LEAST_EXCERPT * 2))));
    const split = allocate(
      shares[index] ?? 0,
      shown.map((file) => ({ need: fileNeed(file), weight: 1 })),
    );
    for (const [at, file] of shown.entries()) rooms.set(file, split[at] ?? 0);
  }
  return files.map((file) => rooms.get(file) ?? 0);
}

function renderFiles(parts: Parts, room: number, truncations: Truncation[]): string[] {
  const rooms = roomsOf(parts.files, room);
  const lines: string[] = [];
  const unshown: FilePart[] = [];
  for (const [index, file] of parts.files.entries()) {
    const space = (rooms[index] ?? 0) - file.name.length - headerRoom;
    const whole = space >= file.text.length;
    if (!whole && space < LEAST_EXCERPT - headerRoom) {
      unshown.push(file);
      continue;
    }
    lines.push(...renderFile(file, space));
    if (!whole || file.source.unreadBytes > 0) truncations.push(fileTruncation(file, space));
  }
  for (const file of unshown)
    truncations.push({ what: file.source.path, unit: 'characters', shown: 0, total: file.text.length });
  const hidden = unshown.length + parts.bundle.unexcerpted;
  if (parts.bundle.unexcerpted > 0)
    truncations.push({
      what: 'text files',
      unit: 'entries',
      shown: parts.bundle.excerpts.length,
      total: parts.bundle.excerpts.length + parts.bundle.unexcerpted,
    });
  if (hidden > 0)
    lines.push(
      `${CUT_MARK} the text of ${thousands(hidden)} of ${thousands(hidden + parts.files.length - unshown.length)} text files is not shown]`,
    );
  return lines;
}

const fileTruncation = (file: FilePart, space: number): Truncation => {
  const { shown } = cutMiddle(file.text, space);
  return file.source.unreadBytes > 0
    ? { what: file.source.path, unit: 'characters', shown, total: file.text.length + file.source.unreadBytes }
    : { what: file.source.path, unit: 'characters', shown, total: file.text.length };
};

function renderFile(file: FilePart, space: number): string[] {
  const cut = cutMiddle(file.text, space);
  const total = file.text.length;
  const header = `${FILE_MARK} ${file.name} (${file.source.class}, ${bytesText(file.source.bytes)})`;
  if (cut.shown === total) return [header, defuseLines(cut.start)];
  const parts = [header, defuseLines(cut.start), cutLine(cut.shown, total, 'characters')];
  return cut.end === '' ? parts : [...parts, defuseLines(cut.end)];
}
