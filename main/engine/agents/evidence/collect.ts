import { lstat } from 'node:fs/promises';
import { MassError } from '../../../common/base/errors.ts';
import type { TaskManifest } from '../../../common/domain/task.ts';
import { locateFile } from '../../workspace/locate.ts';
import { type FileReading, readBounded } from '../../workspace/read-file.ts';
import { type WalkedEntry, walkWorkspace } from '../../workspace/walk.ts';
import type { DeliverableCheck, EvidenceBundle, EvidenceClass, EvidenceEnding, Excerpt, TreeEntry } from './bundle.ts';
import { classifyFile } from './classify.ts';
import { checkDeliverable } from './preflight.ts';

/** Tree entries kept; the rest is counted. */
export const MAX_TREE_ENTRIES = 400;
/** Text characters and files kept over all excerpts. */
export const MAX_EXCERPT_CHARACTERS = 1_500_000;
export const MAX_EXCERPTS = 120;

export interface CollectOptions {
  readonly workspace: string;
  readonly task: Pick<TaskManifest, 'deliverables'>;
  /** Paths the harness placed ("data/prices.csv", "data/*", "data/"): listed as provided, never as work. */
  readonly inputs: readonly string[];
  readonly ending: EvidenceEnding;
}

const classOrder: readonly EvidenceClass[] = ['report', 'metrics', 'code', 'test', 'other'];

/**
 * Reads what an attempt left behind. Deterministic in the workspace's content; bounded in time and size; follows no
 * link. The workspace must be quiet: nothing may write to it meanwhile.
 * Errors: `not_found` when the workspace is no folder.
 */
export async function collectEvidence(options: CollectOptions): Promise<EvidenceBundle> {
  const { workspace, task, ending } = options;
  const stat = await lstat(workspace).catch(() => null);
  if (!stat?.isDirectory())
    throw new MassError(
      'not_found',
      'The workspace of an attempt is gone, so it cannot be judged; rerun the attempt.',
      {
        details: { workspace },
      },
    );
  const walk = await walkWorkspace(workspace);
  const isProvided = inputMatcher(options.inputs);
  const files = walk.entries.filter((entry) => entry.type === 'file');
  const readings = await readFiles(inReadingOrder(files, task, isProvided));
  const deliverables: DeliverableCheck[] = [];
  for (const deliverable of task.deliverables)
    deliverables.push(checkDeliverable(deliverable, await locateFile(workspace, deliverable.path)));
  const tree = walk.entries.map((entry) => treeEntry(entry, readings.get(entry.path), isProvided(entry.path)));
  const { excerpts, unexcerpted } = excerptsOf(files, readings, { task, isProvided });
  return {
    version: 1,
    ending: { outcome: ending.outcome, haltReason: ending.haltReason, ending: ending.ending },
    deliverables,
    tree: {
      entries: keepMostTelling(tree, task),
      files: files.length,
      bytes: files.reduce((sum, entry) => sum + (entry.bytes ?? 0), 0),
      omitted: Math.max(0, tree.length - MAX_TREE_ENTRIES),
      complete: walk.complete,
    },
    excerpts,
    unexcerpted,
  };
}

function inputMatcher(inputs: readonly string[]): (path: string) => boolean {
  const exact = new Set(inputs.filter((input) => !input.endsWith('/') && !input.endsWith('/*')));
  const folders = inputs.filter((input) => !exact.has(input)).map((input) => input.replace(/\*$/, ''));
  return (path) => exact.has(path) || folders.some((folder) => path.startsWith(folder));
}

/** Files read at most: beyond it files are listed by size only. */
const MAX_READ = 2_000;

function inReadingOrder(
  files: readonly WalkedEntry[],
  task: CollectOptions['task'],
  isProvided: (path: string) => boolean,
): WalkedEntry[] {
  const named = new Set(task.deliverables.map(({ path }) => path));
  const rank = ({ path }: WalkedEntry): number => {
    if (named.has(path)) return 0;
    return isProvided(path) ? 9 : 1 + classOrder.indexOf(classifyFile(path, task.deliverables));
  };
  return [...files].sort((a, b) => rank(a) - rank(b)).slice(0, MAX_READ);
}

async function readFiles(files: readonly WalkedEntry[]): Promise<Map<string, FileReading>> {
  const readings = new Map<string, FileReading>();
  for (const file of files) {
    const reading = await readBounded(file.raw);
    if (reading) readings.set(file.path, reading);
  }
  return readings;
}

const treeEntry = (entry: WalkedEntry, reading: FileReading | undefined, provided: boolean): TreeEntry => ({
  path: entry.path,
  type: entry.type,
  ...(entry.bytes === undefined ? {} : { bytes: entry.bytes }),
  ...(provided ? { provided: true as const } : {}),
  ...(reading?.image ? { image: reading.image } : {}),
  ...(entry.entries === undefined ? {} : { entries: entry.entries }),
});

/** When there are too many entries: deliverables, then what lies nearest to the root. */
function keepMostTelling(entries: readonly TreeEntry[], task: CollectOptions['task']): TreeEntry[] {
  if (entries.length <= MAX_TREE_ENTRIES) return [...entries];
  const named = new Set(task.deliverables.map(({ path }) => path));
  const rank = ({ path }: TreeEntry): number => (named.has(path) ? 0 : path.split('/').length);
  const kept = new Set([...entries].sort((a, b) => rank(a) - rank(b)).slice(0, MAX_TREE_ENTRIES));
  return entries.filter((entry) => kept.has(entry));
}

function excerptsOf(
  files: readonly WalkedEntry[],
  readings: ReadonlyMap<string, FileReading>,
  options: { task: CollectOptions['task']; isProvided: (path: string) => boolean },
): { excerpts: Excerpt[]; unexcerpted: number } {
  const { task, isProvided } = options;
  const named = new Set(task.deliverables.map(({ path }) => path));
  const candidates = files.flatMap((file): Excerpt[] => {
    const reading = readings.get(file.path);
    if (!reading?.text || reading.bytes === 0 || isProvided(file.path)) return [];
    const { bytes, sha256 } = reading;
    return [{ path: file.path, class: classifyFile(file.path, task.deliverables), bytes, sha256, ...reading.text }];
  });
  // The sort is stable over the path order of `files`.
  const rank = (excerpt: Excerpt): number => classOrder.indexOf(excerpt.class) * 2 + (named.has(excerpt.path) ? 0 : 1);
  candidates.sort((a, b) => rank(a) - rank(b));
  const excerpts: Excerpt[] = [];
  let characters = 0;
  for (const candidate of candidates) {
    const size = candidate.head.length + candidate.tail.length;
    if (excerpts.length >= MAX_EXCERPTS || characters + size > MAX_EXCERPT_CHARACTERS) continue;
    characters += size;
    excerpts.push(candidate);
  }
  return { excerpts, unexcerpted: candidates.length - excerpts.length };
}
