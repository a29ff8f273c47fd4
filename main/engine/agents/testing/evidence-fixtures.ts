import type { EvidenceBundle, EvidenceClass } from '../evidence/bundle.ts';

/** A bundle of the given files, all of them text. */
export function bundleOf(
  files: Readonly<Record<string, string>>,
  ending: Partial<EvidenceBundle['ending']> = {},
): EvidenceBundle {
  const order = ['report', 'metrics', 'code', 'test', 'other'];
  const excerpts = Object.entries(files)
    .map(([path, head]) => ({
      path,
      class: classOf(path),
      bytes: head.length,
      sha256: null,
      head,
      tail: '',
      unreadBytes: 0,
    }))
    .sort((a, b) => order.indexOf(a.class) - order.indexOf(b.class));
  const entries = Object.entries(files).map(([path, text]) => ({ path, type: 'file' as const, bytes: text.length }));
  return {
    version: 1,
    ending: { outcome: 'completed', haltReason: null, ending: 'The orchestrator gave its final report.', ...ending },
    deliverables: [
      {
        path: 'report.md',
        kind: 'report',
        status: 'report.md' in files ? 'present' : 'missing',
        bytes: null,
        facts: [],
      },
    ],
    tree: {
      entries,
      files: entries.length,
      bytes: entries.reduce((sum, { bytes }) => sum + bytes, 0),
      omitted: 0,
      complete: true,
    },
    excerpts,
    unexcerpted: 0,
  };
}

function classOf(path: string): EvidenceClass {
  if (path === 'report.md') return 'report';
  if (path === 'metrics.json') return 'metrics';
  if (path.startsWith('test')) return 'test';
  return path.endsWith('.py') ? 'code' : 'other';
}
