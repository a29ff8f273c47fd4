import type { Deliverable } from '../../../common/domain/task.ts';

export interface Placeholder {
  /** as it stands in the file, cut */
  readonly text: string;
  /** 1-based */
  readonly line: number;
  readonly count: number;
}

// Bounded repetitions only: the text is hostile, and an unbounded one could be made to take quadratic time.
const words =
  /\blorem ipsum\b|\bplaceholder\b|\[(?:insert|your|fill in|to be)\b[^\]\n]{0,80}\]|<(?:insert|your|fill in)\b[^>\n]{0,80}>/gi;
const marks = /\b(?:TODO|TBD|FIXME)\b/g;
const doubled = /\{\{[^{}\n]{1,80}\}\}/g;
/** "Sharpe ratio: {sharpe:.2f}" in a report is a template nobody filled; \frac{abc} is not. */
const single = /(?<![\\\w}^_$#@])\{[A-Za-z_]\w{2,60}(?::[^{}\n]{0,12})?\}/g;

/** The first unfilled slot or placeholder of a report, manifest or metrics file; null when there is none. */
export function findPlaceholder(kind: Deliverable['kind'], text: string): Placeholder | null {
  const prose = kind === 'report' ? withoutCode(text) : text;
  const patterns = kind === 'report' ? [words, marks, doubled, single] : [words, marks, doubled];
  const hits = patterns.flatMap((pattern) => [...prose.matchAll(pattern)]).sort((a, b) => a.index - b.index);
  const [first] = hits;
  if (first === undefined) return null;
  return { text: first[0].slice(0, 60), line: prose.slice(0, first.index).split('\n').length, count: hits.length };
}

/** Code blocks, code spans and formulas become blanks of equal length, so that lines keep their numbers. */
const withoutCode = (text: string): string =>
  text.replace(/```[\s\S]*?(?:```|$)|`[^`\n]*`|\$[^$\n]*\$/g, (code) => code.replace(/[^\n]/g, ' '));

const pythonIdle =
  /^(?:pass|\.\.\.|import\s.*|from\s.*|def\s.*|async\s+def\s.*|class\s.*|@.*|raise\s+NotImplementedError.*|return(?:\s+None)?|if\s+__name__.*|else:|try:|except.*:|finally:|main\(\))$/;

/** Up to the first " #". A regular expression over a run of spaces would take quadratic time. */
function withoutComment(line: string): string {
  const at = line.indexOf(' #');
  return (at < 0 ? line : line.slice(0, at)).trimEnd();
}

/** True when a program does nothing: only comments, or in Python only definitions without a body. */
export function doesNothing(path: string, text: string): boolean {
  const isPython = /\.py$/i.test(path);
  const source = isPython ? text.replace(/"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)/g, '""') : text;
  const lines = source
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && line !== '""' && !/^(?:#|\/\/|--)/.test(line));
  return lines.every((line) => isPython && pythonIdle.test(withoutComment(line)));
}
