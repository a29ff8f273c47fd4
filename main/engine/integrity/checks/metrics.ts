import type { Severity } from '../../../common/domain/integrity-events.ts';
import { locatePath } from '../../workspace/locate.ts';
import { readText } from '../../workspace/read-file.ts';
import type { CheckedWorkspace, FoundProblem, IntegrityCheck } from '../integrity-check.ts';
import { formatOf, type ReadMetrics, readMetrics } from './read-metrics.ts';
import type { Series } from './series.ts';

/** Of one file; a longer JSON file is a finding, of a longer table the beginning is checked. */
export const MAX_METRICS_BYTES = 2 * 1024 * 1024;
/** Of all files of a workspace that only look like metrics. */
const MAX_TOTAL_BYTES = 32 * 1024 * 1024;
const MAX_FILES = 200;
/** Fewer equal numbers are no sign of anything. */
const MIN_CONSTANT = 3;

const metricsName = /(?:metric|result|score|eval|summary)[^/]*\.(?:json|jsonl|ndjson|csv|tsv)$/i;

/**
 * Numbers that cannot carry a claim: NaN, infinite, null, or all the same. Read are the deliverables of kind "metrics" and
 * every other file named like one, except the task's own. JSON, JSON lines and tables; bare NaN is read as Python writes it.
 */
export const metricsCheck: IntegrityCheck = {
  id: 'metrics',
  run: async (workspace) => {
    const { files, unread } = await metricsFiles(workspace);
    const found: FoundProblem[] = [];
    let budget = MAX_TOTAL_BYTES;
    let skipped = unread;
    for (const file of files) {
      const format = formatOf(file.path);
      if (format === null) continue; // e.g. YAML: nothing a program here can read
      if (budget <= 0 && !file.named) {
        skipped++;
        continue;
      }
      const content = await readText(file.raw, MAX_METRICS_BYTES);
      if (content === null || content.bytes === 0) continue; // the deliverables check speaks of those
      budget -= content.text.length;
      found.push(...judge(file, readMetrics(format, content.text, content.complete), format === 'csv'));
    }
    if (skipped > 0 || !workspace.walk.complete) found.push(notAllRead(skipped));
    return found;
  },
};

interface MetricsFile {
  readonly path: string;
  readonly raw: Buffer;
  /** a deliverable: its every value counts */
  readonly named: boolean;
}

async function metricsFiles({ folder, deliverables, inputs, walk }: CheckedWorkspace) {
  const files: MetricsFile[] = [];
  for (const { path, kind } of deliverables) {
    if (kind !== 'metrics') continue;
    const located = await locatePath(folder, path);
    if (typeof located === 'object') files.push({ path, raw: located.raw, named: true });
  }
  const known = new Set([...deliverables.map(({ path }) => path), ...inputs.map(({ path }) => path)]);
  const alike = walk.entries.filter(
    (entry) => entry.type === 'file' && metricsName.test(entry.path) && !known.has(entry.path),
  );
  for (const { path, raw } of alike.slice(0, MAX_FILES)) files.push({ path, raw, named: false });
  return { files, unread: Math.max(0, alike.length - MAX_FILES) };
}

function notAllRead(skipped: number): FoundProblem {
  const what = skipped > 0 ? `${skipped} files named like metrics were` : 'a part of the workspace was';
  return {
    checkId: 'metrics.unread',
    severity: 'doubtful',
    path: '',
    message: `The workspace is too large: ${what} not checked.`,
    details: { skipped },
  };
}

function judge(file: MetricsFile, read: ReadMetrics, isTable: boolean): FoundProblem[] {
  const { path, named } = file;
  const finding = (what: string, severity: Severity, predicate: string, details: FoundProblem['details'] = {}) => ({
    checkId: `metrics.${what}`,
    severity,
    path,
    message: `${path} ${predicate}.`,
    details,
  });
  if ('problem' in read) return [finding('unreadable', named ? 'serious' : 'doubtful', read.problem)];
  if (read.empty) return []; // the deliverables check speaks of those
  const { series } = read;
  const totals = totalsOf(series);
  const { finite, invalid, missing } = totals;
  if (finite === 0) {
    if (named && invalid + missing === 0) return [finding('no-number', 'serious', 'holds no number', totals)];
    if (invalid === 0 && !named) return [];
    return [finding('no-finite', 'serious', noFinite(invalid, missing), totals)];
  }
  const found: FoundProblem[] = [];
  const broken = series.filter((one) => one.invalid > 0 && (named || !isTable || (one.finite === 0 && one.text === 0)));
  const values = finite + invalid + missing;
  if (broken.length > 0) {
    const where = broken[0] as Series;
    const count = sum(broken, (one) => one.invalid);
    const predicate = `holds ${count} of ${values} values that are NaN or infinite, the first (${where.firstInvalid}) at ${placeOf(where)}`;
    found.push(finding('not-finite', 'doubtful', predicate, { ...totals, places: broken.slice(0, 20).map(placeOf) }));
  }
  const gaps = named ? series.filter((one) => one.missing > 0 && one.text === 0) : [];
  if (gaps.length > 0) {
    const predicate = `holds ${sum(gaps, (one) => one.missing)} of ${values} values that are null or empty, the first at ${placeOf(gaps[0] as Series)}`;
    found.push(finding('missing', 'doubtful', predicate, { ...totals, places: gaps.slice(0, 20).map(placeOf) }));
  }
  const constant = constantOf(series);
  if (constant !== null) found.push(finding('constant', 'doubtful', constant, totals));
  return found;
}

const placeOf = ({ path }: Series): string => (path === '' ? 'the top' : path);
const sum = (series: readonly Series[], pick: (one: Series) => number): number =>
  series.reduce((total, one) => total + pick(one), 0);

/** Empty cells of a column of words are no missing numbers. */
const totalsOf = (series: readonly Series[]) => ({
  finite: sum(series, (one) => one.finite),
  invalid: sum(series, (one) => one.invalid),
  missing: sum(series, (one) => (one.text === 0 ? one.missing : 0)),
});

function noFinite(invalid: number, missing: number): string {
  const count = invalid + missing;
  const kinds = [invalid > 0 ? 'NaN or infinite' : '', missing > 0 ? 'null or empty' : ''].filter(Boolean);
  return `holds no finite number: ${count === 1 ? 'its only value is' : `all of its ${count} values are`} ${kinds.join(', ')}`;
}

/** A predicate when every measured number is the same: of a table each column by itself, steps and indices left out. */
function constantOf(all: readonly Series[]): string | null {
  const series = all.filter((one) => one.finite > 0);
  const values = sum(series, (one) => one.finite);
  if (series.every((one) => one.finite >= MIN_CONSTANT)) {
    const measured = series.filter((one) => !one.isCounter);
    const [first] = measured;
    if (first === undefined || !measured.every((one) => one.constant)) return null;
    const shown = measured.slice(0, 3).map((one) => `${placeOf(one)} is always ${one.first}`);
    return `never varies: ${shown.join(', ')}${measured.length > 3 ? `, and ${measured.length - 3} more` : ''}`;
  }
  const [first] = series;
  const same = first !== undefined && series.every((one) => one.constant && one.first === first.first);
  return same && values >= MIN_CONSTANT ? `holds ${values} numbers, and all of them are ${first.first}` : null;
}
