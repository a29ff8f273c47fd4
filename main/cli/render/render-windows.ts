import type { EpisodeWindows, WindowSetSummary, WindowText } from '../../common/protocol/windows.ts';
import { formatCount, printable, table } from './format.ts';
import type { Paint } from './paint.ts';

type Window = EpisodeWindows['windows'][number];
type Part = WindowText['blocks'][number]['part'];

const percent = (part: number, of: number): string => `${of === 0 ? 0 : Math.round((100 * part) / of)}%`;
const several = (n: number, one: string): string => `${formatCount(n)} ${one}${n === 1 ? '' : 's'}`;

/** The rendered episodes of a cycle, and how to look into one. */
export function renderWindowSet(name: string, set: WindowSetSummary): string {
  const { total, leftOut, episodes } = set;
  const rows = episodes.map(({ taskId, run, split, counts, workflowOverlap }) => [
    `${taskId}/${run}`,
    split,
    formatCount(counts.windows),
    formatCount(counts.tokens),
    formatCount(counts.labelledTokens),
    `${formatCount(workflowOverlap.shared)} of ${formatCount(workflowOverlap.ofWorkflow)}`,
  ]);
  const [first] = episodes;
  return [
    `Cycle ${set.cycle}: ${several(total.windows, 'window')} of at most ${formatCount(set.windowTokens)} tokens; ` +
      `${formatCount(total.labelledTokens)} of ${formatCount(total.tokens)} tokens are trained (${percent(total.labelledTokens, total.tokens)}).`,
    ...(leftOut.windows === 0
      ? []
      : [
          `${several(leftOut.windows, 'window')} had to leave out context right before a trained answer: ${several(leftOut.tokens, 'token')}.`,
        ]),
    set.folder,
    '',
    table(['episode', 'split', 'windows', 'tokens', 'trained', 'workflow still said'], rows, { right: [2, 3, 4, 5] }),
    '',
    ...(first === undefined
      ? []
      : [`Look into one with: mass render ${name} --inspect ${first.taskId}/${first.run} | less`]),
  ]
    .join('\n')
    .trimEnd();
}

/** What comes before the windows of an episode: counts, how to read them, what was removed and what is left of it. */
export function renderEpisodeHead(episode: EpisodeWindows, paint: Paint): string {
  const { taskId, run, rank, split, counts, episodeId, cycle, windowSetId, removed } = episode;
  return [
    paint.strong(
      `${taskId} run ${run}, rank ${rank}, ${split === 'train' ? 'to train' : 'to validate'}: ${several(counts.windows, 'window')}, ` +
        `${formatCount(counts.labelledTokens)} of ${formatCount(counts.tokens)} tokens trained (${percent(counts.labelledTokens, counts.tokens)})`,
    ),
    paint.faint(`episode ${episodeId}, cycle ${cycle}, window set ${windowSetId}`),
    '',
    'The sign before a line says what happens to its tokens:',
    ...(['loss', 'context', 'overlap', 'header'] as const).map((part) => line(part, meaning[part], paint)),
    '"·" after the sign: the line goes on from the one above.',
    '',
    ...(removed === ''
      ? ['Nothing was removed from the first message: this run had the bare prompt.']
      : [
          `Removed from the orchestrator's first message (${formatCount(removed.length)} characters):`,
          ...printable(removed.trim())
            .split('\n')
            .map((text) => `- ${paint.removed(text)}`),
          '',
          ...survivorLines(episode, paint),
        ]),
    '',
    windowTable(episode.windows),
  ].join('\n');
}

function windowTable(windows: readonly Window[]): string {
  const tokensOf = ({ blocks }: Window, wanted: Part): string =>
    formatCount(blocks.reduce((sum, { part, start, end }) => sum + (part === wanted ? end - start : 0), 0));
  const rows = windows.map((window, i) => [
    String(i + 1),
    whose(window),
    formatCount(window.length),
    ...(['header', 'overlap', 'context', 'loss'] as const).map((part) => tokensOf(window, part)),
  ]);
  const head = ['window', 'conversation', 'tokens', 'header |', 'overlap ~', 'masked', 'trained +'];
  return table(head, rows, { right: [0, 2, 3, 4, 5, 6] });
}

const whose = ({ role, thread }: Window): string => (thread === role ? role : `${role} "${printable(thread)}"`);

const meaning: Readonly<Record<Part, string>> = {
  loss: 'trained: the model sampled it, and learns to say it',
  context: 'masked: read, not learned',
  overlap: 'masked: repeated from an earlier window or an earlier question',
  header: 'masked: system prompt and first message, in every window',
};

function survivorLines({ workflowOverlap, windows }: EpisodeWindows, paint: Paint): string[] {
  const { shared, ofWorkflow, ngram } = workflowOverlap;
  if (shared === 0)
    return [`None of the ${several(ofWorkflow, 'run')} of ${ngram} words in the workflow is said in a trained answer.`];
  const passages = [...new Set(windows.flatMap((window) => window.survivors))];
  return [
    `Still said in trained answers: ${formatCount(shared)} of the workflow's ${several(ofWorkflow, 'run')} of ${ngram} words ` +
      `(${percent(shared, ofWorkflow)}). Marked below: ${paint.found('[[like this]]')}.`,
    ...passages.map((passage) => {
      const where = windows.flatMap((window, i) => (window.survivors.includes(passage) ? [i + 1] : []));
      return `  "${printable(passage)}" in window${where.length === 1 ? '' : 's'} ${where.join(', ')}`;
    }),
  ];
}

export interface WindowPlace {
  readonly window: Window;
  /** 1-based, within the episode */
  readonly number: number;
  readonly of: number;
  /** the number of an earlier window that begins with the same header; absent: none */
  readonly sameHeaderAs?: number | undefined;
}

/**
 * A window in full: nothing is cut, and control characters are shown as U+FFFD. Only a header that was shown before is
 * named instead of repeated.
 */
export function renderWindow(place: WindowPlace, { blocks }: WindowText, paint: Paint): string {
  const { window, number, of, sameHeaderAs } = place;
  const { length, labelledTokens, threadId } = window;
  const head = `=== window ${number} of ${of}: ${whose(window)}, ${formatCount(length)} tokens, ${formatCount(labelledTokens)} trained ===`;
  const lines: string[] = [];
  let lineIsOpen = false;
  for (const { part, text } of joined(blocks)) {
    if (part === 'header' && sameHeaderAs !== undefined) {
      lines.push(line(part, `(the header of window ${sameHeaderAs} again, word for word)`, paint));
      continue;
    }
    const shown = part === 'loss' ? markPassages(printable(text), window.survivors) : printable(text);
    const texts = shown.split('\n');
    const ends = texts.at(-1) === '';
    if (ends) texts.pop();
    texts.forEach((one, i) => {
      const goesOn = i === 0 && lineIsOpen;
      // Only the line break of the line above: nothing to show.
      if (goesOn && one === '') return;
      lines.push(line(part, one, paint, goesOn));
    });
    lineIsOpen = !ends;
  }
  return [paint.strong(head), paint.faint(`thread ${threadId}`), ...lines].join('\n');
}

/** Neighbours of one part become one text: where one turn ends and the next begins is in the text. */
function joined(blocks: WindowText['blocks']): { part: Part; text: string }[] {
  const out: { part: Part; text: string }[] = [];
  for (const { part, text } of blocks) {
    const last = out.at(-1);
    if (last?.part === part) last.text += text;
    else out.push({ part, text });
  }
  return out;
}

const signs: Readonly<Record<Part, string>> = { loss: '+', context: ' ', overlap: '~', header: '|' };

function line(part: Part, text: string, paint: Paint, goesOn = false): string {
  const colour = { loss: paint.trained, context: (same: string) => same, overlap: paint.overlap, header: paint.faint }[
    part
  ];
  const painted = text
    .split(markedPassage)
    .map((piece, i) => (i % 2 === 1 ? paint.found(`[[${piece}]]`) : colour(piece)));
  const sign = colour(signs[part]);
  return text === '' ? sign.trimEnd() : `${sign}${goesOn ? '·' : ' '}${painted.join('')}`;
}

// Control characters, of which `printable` has left none in a text.
const [markStart, markEnd] = ['\u0001', '\u0002'];
const markedPassage = new RegExp(`${markStart}(.*?)${markEnd}`);
const wordSeparator = '[^\\p{L}\\p{N}_]+';

/** Marks passages, which are given as words; line by line, so that a mark never spans two lines. */
function markPassages(text: string, passages: readonly string[]): string {
  if (passages.length === 0) return text;
  const longestFirst = [...passages].sort((a, b) => b.length - a.length);
  const pattern = longestFirst.map((passage) => passage.split(' ').join(wordSeparator)).join('|');
  const found = new RegExp(`(?<![\\p{L}\\p{N}_])(?:${pattern})(?![\\p{L}\\p{N}_])`, 'giu');
  return text.replace(found, (match) =>
    match
      .split('\n')
      .map((part) => (part === '' ? '' : `${markStart}${part}${markEnd}`))
      .join('\n'),
  );
}
