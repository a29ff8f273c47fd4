import { parseLooseJson } from '../../../common/base/parse-json.ts';
import { escapeName } from '../../workspace/visible-text.ts';
import { addText, type Series, SeriesTable } from './series.ts';

export type MetricsFormat = 'json' | 'jsonl' | 'csv';

export type ReadMetrics =
  | { readonly series: readonly Series[] /** an empty object, list or table */; readonly empty: boolean }
  /** what follows the file's name in a sentence: "is not JSON" */
  | { readonly problem: string };

export const formatOf = (path: string): MetricsFormat | null => {
  const extension = /\.(json|jsonl|ndjson|csv|tsv)$/i.exec(path)?.[1]?.toLowerCase();
  if (extension === 'json') return 'json';
  if (extension === 'jsonl' || extension === 'ndjson') return 'jsonl';
  return extension === undefined ? null : 'csv';
};

/** `complete` false: the text is only the beginning of the file, and its last line may be cut. */
export function readMetrics(format: MetricsFormat, text: string, complete: boolean): ReadMetrics {
  if (format === 'json') return complete ? readJson(text) : { problem: 'is too large to be checked' };
  const whole = complete ? text : text.slice(0, text.lastIndexOf('\n') + 1);
  return format === 'jsonl' ? readJsonLines(whole) : readCsv(whole);
}

function readJson(text: string): ReadMetrics {
  const json = parseLooseJson(text);
  if ('problem' in json) return { problem: problemOf(json.problem) };
  const table = new SeriesTable();
  addJson(table, json.value);
  return { series: table.all(), empty: isEmpty(json.value) };
}

function readJsonLines(text: string): ReadMetrics {
  const table = new SeriesTable();
  let rows = 0;
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const json = parseLooseJson(line);
    if ('problem' in json) return { problem: `${problemOf(json.problem)} in line ${index + 1}` };
    addJson(table, json.value);
    rows++;
  }
  return { series: table.all(), empty: rows === 0 };
}

const problemOf = (problem: string): string => (problem === 'not JSON' ? 'is not JSON' : `is ${problem}`);

/** null, no text, or a list or object without a member. */
export function isEmpty(value: unknown): boolean {
  if (value === null || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

const MAX_PATH = 120;

/** Values of lists share one place ("folds[].auc"), so that a list of records reads like a table. */
function addJson(table: SeriesTable, root: unknown): void {
  const open: { value: unknown; path: string }[] = [{ value: root, path: '' }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, path } = next;
    if (typeof value === 'number') addNumber(table.at(path), value);
    else if (typeof value === 'string') addText(table.at(path), value);
    else if (value === null) table.at(path).missing++;
    // Pushed backwards, so that the stack yields them in the file's order.
    else if (typeof value === 'object') for (const child of childrenOf(value, path).reverse()) open.push(child);
  }
}

function childrenOf(value: object, path: string): { value: unknown; path: string }[] {
  if (Array.isArray(value)) {
    const inside = cut(`${path}[]`);
    return value.map((inner: unknown) => ({ value: inner, path: inside }));
  }
  return Object.entries(value).map(([key, inner]: [string, unknown]) => ({
    value: inner,
    path: cut(path === '' ? shownKey(key) : `${path}.${shownKey(key)}`),
  }));
}

/** JSON.parse reads 1e999 as Infinity. */
const addNumber = (series: Series, value: number): void =>
  Number.isFinite(value) ? series.addNumber(value) : series.addInvalid(String(value));

const cut = (path: string): string => (path.length > MAX_PATH ? `${path.slice(0, MAX_PATH)}…` : path);
const shownKey = (key: string): string => escapeName(key.length > 40 ? `${key.slice(0, 40)}…` : key);

const MAX_COLUMNS = 500;
const missingCell = /^(?:|null|none|na|n\/a|<na>)$/i;

function readCsv(text: string): ReadMetrics {
  const rows = csvRows(text);
  const [head] = rows;
  if (head === undefined) return { series: [], empty: true };
  const headless = head.every((cell) => cell.trim() !== '' && Number.isFinite(Number(cell)));
  const table = new SeriesTable();
  const columns = head
    .slice(0, MAX_COLUMNS)
    .map((cell, i) => table.at(headless || cell.trim() === '' ? `column ${i + 1}` : shownKey(cell.trim())));
  const body = headless ? rows : rows.slice(1);
  // Bounded by the cells that are there: a wide header over a million short rows costs nothing.
  for (const row of body)
    for (let i = 0; i < row.length && i < columns.length; i++) {
      const series = columns[i] as Series;
      const cell = (row[i] as string).trim();
      if (missingCell.test(cell)) series.missing++;
      else addText(series, cell);
    }
  return { series: table.all(), empty: body.length === 0 };
}

/** Rows of cells; quoted cells may hold separators, line ends and doubled quotes. Blank lines are left out. */
export function csvRows(text: string): string[][] {
  const separator = separatorOf(text);
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = '';
  let quoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || cell.trim() !== '') rows.push(row);
    row = [];
    cell = '';
  };
  for (let i = text.startsWith('\uFEFF') ? 1 : 0; i < text.length; i++) {
    const character = text[i] as string;
    if (quoted) {
      if (character !== '"') cell += character;
      else if (text[i + 1] === '"') cell += text[i++];
      else quoted = false;
    } else if (character === '"' && cell === '') quoted = true;
    else if (character === separator) {
      row.push(cell);
      cell = '';
    } else if (character === '\n') endRow();
    else if (character !== '\r') cell += character;
  }
  endRow();
  return rows;
}

function separatorOf(text: string): string {
  const end = text.indexOf('\n');
  const line = end < 0 ? text : text.slice(0, end);
  const count = (character: string): number => line.split(character).length;
  return [',', ';', '\t'].reduce((best, candidate) => (count(candidate) > count(best) ? candidate : best));
}
