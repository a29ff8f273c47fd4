import type { Deliverable } from '../../../common/domain/task.ts';
import type { EvidenceClass } from './bundle.ts';

const codeExtensions = /\.(py|r|jl|ipynb|ts|mts|js|mjs|sh|sql|c|h|cc|cpp|hpp|rs|go|java|m|scala|rb)$/i;
const baseName = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

const byKind: Record<Deliverable['kind'], EvidenceClass> = {
  report: 'report',
  metrics: 'metrics',
  code: 'code',
  test: 'test',
  manifest: 'other',
  plot: 'other',
  data: 'other',
};

/** What a text file counts as: a named deliverable by its kind, any other by its name. */
export function classifyFile(path: string, deliverables: readonly Deliverable[]): EvidenceClass {
  const named = deliverables.find((deliverable) => deliverable.path === path);
  if (named) return byKind[named.kind];
  const name = baseName(path);
  if (codeExtensions.test(name))
    return /^tests?[._-]|[._-]tests?\.|\.spec\./i.test(name) || /(^|\/)tests?\//i.test(path) ? 'test' : 'code';
  if (/^(final[_-]?)?(report|paper|findings|conclusions?)\b.*\.(md|txt|rst|tex|html?)$/i.test(name)) return 'report';
  if (/(metric|result|score|eval|summary)[^/]*\.json$/i.test(name)) return 'metrics';
  return 'other';
}
