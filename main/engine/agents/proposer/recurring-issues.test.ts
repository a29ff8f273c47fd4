import { expect, it } from 'vitest';
import type { HistoryEntry } from './proposer-inputs.ts';
import { recurringIssues } from './recurring-issues.ts';

const entry = (version: number, more: Partial<HistoryEntry> = {}): HistoryEntry => ({
  version,
  basedOn: null,
  block: '{}',
  ending: { outcome: 'completed', haltReason: null, ending: '' },
  deliverables: [],
  comparisons: [],
  ...more,
});
const halted = { outcome: 'halted', haltReason: 'loop', ending: '' } as const;
const check = (status: 'present' | 'missing', facts: string[] = []) => [
  { path: 'metrics.json', kind: 'metrics', status, bytes: null, facts },
];

it('names what repeats, most frequent first, and nothing that happened once', () => {
  const history = [
    entry(0, { ending: halted, deliverables: check('missing') }),
    entry(1, { deliverables: check('present', ['2 of 7 values are NaN, infinite or null', '12 words']) }),
    entry(2, { ending: halted, deliverables: check('present', ['3 of 9 values are NaN, infinite or null']) }),
    entry(3, { block: null, ending: null }),
    entry(4, { ending: halted, deliverables: check('present', ['not valid JSON']) }),
    entry(5, { block: null, ending: null }),
  ];
  expect(recurringIssues(history)).toEqual([
    { issue: 'execution halted: loop', versions: [0, 2, 4] },
    { issue: 'the proposed plan could not be used', versions: [3, 5] },
    { issue: 'metrics.json: some values are NaN, infinite or null', versions: [1, 2] },
  ]);
});

it('does not depend on the order of the history', () => {
  const history = [0, 1, 2].map((version) => entry(version, { deliverables: check('missing') }));
  expect(recurringIssues([...history].reverse())).toEqual([{ issue: 'metrics.json missing', versions: [0, 1, 2] }]);
});
