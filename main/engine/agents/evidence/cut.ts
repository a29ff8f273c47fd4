import { CUT_MARK } from './escape.ts';

export const thousands = (value: number): string => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');

/** What a rendering left out, for records and for the reader of a report. `unit` counts `shown` and `total`. */
export interface Truncation {
  readonly what: string;
  readonly unit: 'characters' | 'entries';
  readonly shown: number;
  readonly total: number;
}

const isLow = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff;

/** First `length` UTF-16 units, fewer by one rather than half a character. */
export const takeStart = (text: string, length: number): string =>
  text.slice(0, length > 0 && isLow(text.charCodeAt(length)) ? length - 1 : Math.max(0, length));

/** Last `length` UTF-16 units, fewer by one rather than half a character. */
export function takeEnd(text: string, length: number): string {
  if (length <= 0) return '';
  const start = Math.max(0, text.length - length);
  return text.slice(start > 0 && isLow(text.charCodeAt(start)) ? start + 1 : start);
}

/** Room a cut mark takes; texts shorter than twice this are not worth cutting. */
export const CUT_ROOM = 48;

export const cutLine = (shown: number, total: number, unit: string): string =>
  `${CUT_MARK} ${thousands(shown)} of ${thousands(total)} ${unit} shown]`;

export interface CutText {
  /** before and after the mark; `end` is "" when nothing was cut */
  readonly start: string;
  readonly end: string;
  readonly shown: number;
}

/** Keeps the beginning (three quarters) and the end of a text in `room` characters, the mark's own included. */
export function cutMiddle(text: string, room: number): CutText {
  if (text.length <= room) return { start: text, end: '', shown: text.length };
  const keep = Math.max(0, room - CUT_ROOM);
  const end = takeEnd(text, Math.floor(keep / 4));
  const start = takeStart(text, keep - end.length);
  return { start, end, shown: start.length + end.length };
}

/** As many whole lines as fit, then a line that counts the rest. */
export function cutLines(lines: readonly string[], room: number, noun: string): { lines: string[]; shown: number } {
  const total = lines.reduce((sum, line) => sum + line.length + 1, 0);
  if (total <= room) return { lines: [...lines], shown: lines.length };
  const kept: string[] = [];
  let used = CUT_ROOM;
  for (const line of lines) {
    used += line.length + 1;
    if (used > room) break;
    kept.push(line);
  }
  return { lines: [...kept, cutLine(kept.length, lines.length, noun)], shown: kept.length };
}
