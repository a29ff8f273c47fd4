import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { diffWorkflows } from './workflow-diff.ts';

interface Team {
  agents: { id: string; role: string; instruction: string; contract?: string }[];
  hops?: unknown[];
  note?: string;
}
const base: Team = {
  agents: [
    { id: 'data', role: 'Data engineer', instruction: 'Load the table and check it.', contract: 'Return clean.csv.' },
    { id: 'model', role: 'Modeller', instruction: 'Fit.' },
  ],
  hops: [{ from: 'data', to: 'model', what: 'clean.csv' }],
};
const diff = (before: Team, after: Team, limit = 1500): string =>
  diffWorkflows({ before: JSON.stringify(before), after: JSON.stringify(after), limit });

describe('diffWorkflows', () => {
  it('shows changed parts of agents, new and removed agents', () => {
    const [data] = base.agents as [Team['agents'][0]];
    const after: Team = {
      ...base,
      agents: [
        { ...data, contract: 'Return clean.csv and the leakage check.' },
        { id: 'review', role: 'Reviewer', instruction: 'Rerun it.', contract: 'Defects.' },
      ],
    };
    expect(diff(base, after).split('\n')).toEqual([
      '~ agent data contract: "…rn clean.csv." -> "…rn clean.csv and the leakage check."',
      '- agent model: Modeller',
      '+ agent review: Reviewer | Rerun it. | Defects.',
    ]);
  });

  it('shows a contract given where there was none', () => {
    const after = { ...base, agents: base.agents.map((a) => ({ ...a, contract: a.contract ?? 'metrics.json' })) };
    expect(diff(base, after)).toBe('~ agent model contract: (new) metrics.json');
    expect(diff(after, base)).toBe('~ agent model contract: (removed) metrics.json');
  });

  it('shows hops added, removed, changed and recalled', () => {
    const hops = [
      { from: 'data', to: 'model', what: 'clean.csv and its checks' },
      { from: 'model', to: 'data', what: 'units only', recall: true },
    ];
    expect(diff(base, { ...base, hops }).split('\n')).toEqual([
      '~ hop data -> model: "clean.csv" -> "clean.csv and its checks"',
      '+ hop model -> data: (recall) units only',
    ]);
    expect(diff(base, { ...base, hops: [] })).toBe('- hop data -> model: clean.csv');
  });

  it('tells order, other text and mere layout apart', () => {
    const turned = { ...base, agents: [...base.agents].reverse() };
    expect(diff(base, turned)).toBe('~ agent order: "data, model" -> "model, data"');
    expect(diff(base, { ...base, note: 'hurry' })).toBe('~ other text: "" -> "note: "hurry""');
    const text = JSON.stringify(base);
    expect(diffWorkflows({ before: text, after: JSON.stringify(base, null, 2), limit: 99 })).toBe('(layout only)');
    expect(diffWorkflows({ before: text, after: text, limit: 99 })).toBe('(no change)');
  });

  it('compares plain text where there is no team to compare', () => {
    expect(
      diffWorkflows({ before: 'first plan, then write the code', after: 'first plan, then test the code', limit: 200 }),
    ).toBe('text: "… plan, then write the code" -> "… plan, then test the code"');
  });

  it('shortens excerpts first, and then counts what does not fit', () => {
    const long = (letter: string): Team => ({
      agents: Array.from({ length: 8 }, (_, i) => ({ id: `a${i}`, role: 'r', instruction: letter.repeat(900) })),
    });
    const wide = diff(long('x'), long('y'), 1500);
    expect(wide.split('\n')).toHaveLength(8);
    expect(wide.length).toBeGreaterThan(800);
    const narrow = diff(long('x'), long('y'), 250);
    expect(narrow.length).toBeLessThanOrEqual(250);
    expect(narrow).toMatch(/\(\+\d more\)$/);
  });

  it('stays within any limit, gives the same text twice and never splits a character', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 60 }),
      fc.constantFrom('😀'.repeat(40), 'a b', 'x'.repeat(300)),
    );
    const team = fc
      .record({
        agents: fc.array(
          fc.record({ id: fc.constantFrom('a', 'b', 'c'), role: text, instruction: text, contract: text }),
          {
            maxLength: 5,
          },
        ),
        hops: fc.array(fc.record({ from: fc.constantFrom('a', 'b'), to: fc.constantFrom('a', 'b', 'c'), what: text })),
      })
      .map((value) => JSON.stringify(value));
    const block = fc.oneof(team, text);
    fc.assert(
      fc.property(block, block, fc.integer({ min: 0, max: 2000 }), (before, after, limit) => {
        const out = diffWorkflows({ before, after, limit });
        expect(out.length).toBeLessThanOrEqual(limit);
        expect(diffWorkflows({ before, after, limit })).toBe(out);
        if (limit > 60) expect(out).not.toBe('');
        if (!/\p{Surrogate}/u.test(before + after)) expect(/\p{Surrogate}/u.test(out)).toBe(false);
      }),
      { numRuns: 300 },
    );
  });
});
