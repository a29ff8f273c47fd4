import { parseLooseJson } from '../../../common/base/parse-json.ts';
import type { Severity } from '../../../common/domain/integrity-events.ts';
import type { Deliverable } from '../../../common/domain/task.ts';
import { locateFile, locatePath } from '../../workspace/locate.ts';
import { readText } from '../../workspace/read-file.ts';
import { escapeName } from '../../workspace/visible-text.ts';
import type { FoundProblem, IntegrityCheck } from '../integrity-check.ts';
import { doesNothing, findPlaceholder } from './placeholders.ts';
import { formatOf, isEmpty, readMetrics } from './read-metrics.ts';

/** Of a deliverable's text; a placeholder behind it is not looked for. */
const MAX_TEXT_BYTES = 512 * 1024;
/** A plot with a side below this shows nothing. */
const MIN_PLOT_PIXELS = 16;

type Problem = readonly [what: string, severity: Severity, predicate: string, details?: FoundProblem['details']];

/** What the task asked for must be there and be more than a stand-in. */
export const deliverablesCheck: IntegrityCheck = {
  id: 'deliverables',
  run: async ({ folder, deliverables }) => {
    const found: FoundProblem[] = [];
    for (const deliverable of deliverables) {
      const problem = await problemOf(folder, deliverable);
      if (problem === null) continue;
      const { path } = deliverable;
      const [what, severity, predicate, details = {}] = problem;
      found.push({ checkId: `deliverables.${what}`, severity, path, message: `${path} ${predicate}.`, details });
    }
    return found;
  },
};

async function problemOf(folder: string, deliverable: Deliverable): Promise<Problem | null> {
  const { path, kind } = deliverable;
  const located = await locatePath(folder, path);
  if (located === 'missing') return ['missing', 'serious', 'was asked for and is missing'];
  const content = located === 'not-a-file' ? null : await readText(located.raw, MAX_TEXT_BYTES);
  if (content === null) return ['not-a-file', 'serious', 'is a link, a folder or cannot be read'];
  if (content.text.trim() === '') return ['empty', 'serious', 'is empty'];
  if (kind === 'plot') return plotProblem(folder, path);
  if (kind === 'code' || kind === 'test')
    return content.complete && doesNothing(path, content.text)
      ? ['does-nothing', 'serious', 'holds no statement that does anything']
      : null;
  return dataProblem(deliverable, content) ?? (kind === 'data' ? null : placeholderProblem(kind, content.text));
}

async function plotProblem(folder: string, path: string): Promise<Problem | null> {
  if (!/\.png$/i.test(path)) return null;
  const image = (await locateFile(folder, path))?.reading?.image ?? null;
  if (image === null) return ['not-an-image', 'serious', 'is not a PNG image'];
  const { width, height } = image;
  if (Math.min(width, height) >= MIN_PLOT_PIXELS) return null;
  return [
    'tiny-image',
    'serious',
    `is an image of ${width} x ${height} pixels, which shows nothing`,
    { width, height },
  ];
}

/** A JSON file or table that cannot be read or holds nothing. Of metrics that cannot be read the metrics check speaks. */
function dataProblem(
  { path, kind }: Deliverable,
  { text, complete }: { text: string; complete: boolean },
): Problem | null {
  const format = formatOf(path);
  const unreadable = (predicate: string): Problem | null =>
    kind === 'metrics' ? null : ['unreadable', 'serious', predicate];
  if (format === null || !complete) return null;
  if (format === 'json') {
    const json = parseLooseJson(text);
    if ('problem' in json) return unreadable(json.problem === 'not JSON' ? 'is not JSON' : `is ${json.problem}`);
    return isEmpty(json.value) ? ['empty', 'serious', `holds nothing (${text.trim().slice(0, 20)})`] : null;
  }
  const read = readMetrics(format, text, complete);
  if ('problem' in read) return unreadable(read.problem);
  return read.empty ? ['empty', 'serious', 'has a header and no row'] : null;
}

function placeholderProblem(kind: Deliverable['kind'], text: string): Problem | null {
  const hit = findPlaceholder(kind, text);
  if (hit === null) return null;
  const more = hit.count > 1 ? `, and ${hit.count - 1} more` : '';
  const predicate = `holds a placeholder, ${JSON.stringify(escapeName(hit.text))} in line ${hit.line}${more}`;
  return ['placeholder', 'doubtful', predicate, { line: hit.line, count: hit.count }];
}
