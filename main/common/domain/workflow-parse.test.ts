import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_BLOCK_BYTES, parseWorkflow } from './workflow-parse.ts';

const json = (value: unknown): string => JSON.stringify(value, null, 2);

describe('parseWorkflow: shapes', () => {
  it('reads a list of agents', () => {
    const block = json([
      { agent_id: 'data', role: 'Data engineer', instruction: 'Load and check.' },
      { agent_id: 'model', role: 'Modeller', instruction: 'Fit.', contract: 'metrics.json' },
    ]);
    expect(parseWorkflow(block)).toEqual({
      parsed: true,
      agents: [
        { id: 'data', role: 'Data engineer', instruction: 'Load and check.', contract: null },
        { id: 'model', role: 'Modeller', instruction: 'Fit.', contract: 'metrics.json' },
      ],
      hops: [],
      unrecognised: [],
      issues: [],
    });
  });

  it('reads agents with contracts and hops, and sees recalls', () => {
    const { agents, hops, issues, unrecognised } = parseWorkflow(
      json({
        agents: [
          { id: 'a', role: 'r', instruction: 'i', contract: { outputs: ['x.csv', 'y.json'], checks: 'no leakage' } },
          { agentId: 'b', Role: 'r', Instructions: 'i' },
        ],
        handoffs: [
          { from: 'orchestrator', to: 'a', handoff: 'the task' },
          { from: 'a', to: 'b', what: 'x.csv' },
          { from: 'b', to: 'a', what: 'only the failed rows' },
          { from: 'orchestrator', to: 'b', what: 'again', recall: false },
          { from: 'a', to: 'orchestrator' },
        ],
      }),
    );
    expect(agents.map((a) => [a.id, a.contract])).toEqual([
      ['a', 'outputs: x.csv; y.json\nchecks: no leakage'],
      ['b', null],
    ]);
    expect(hops).toEqual([
      { from: 'orchestrator', to: 'a', what: 'the task', recall: false },
      { from: 'a', to: 'b', what: 'x.csv', recall: false },
      { from: 'b', to: 'a', what: 'only the failed rows', recall: true },
      { from: 'orchestrator', to: 'b', what: 'again', recall: false },
      { from: 'a', to: 'orchestrator', what: '', recall: false },
    ]);
    expect(issues).toEqual([]);
    expect(unrecognised).toEqual([]);
  });

  it('reads hops as an order of names, as arrows, as tuples and inside a list of agents', () => {
    const agents = ['a', 'b'].map((id) => ({ id, role: 'r', instruction: 'i' }));
    const pairs = (block: unknown) => parseWorkflow(json(block)).hops.map((h) => `${h.from}>${h.to}`);
    expect(pairs({ agents, order: ['a', 'b', 'a'] })).toEqual(['orchestrator>a', 'a>b', 'b>a']);
    expect(pairs({ agents, hops: ['orchestrator -> a → b: the table'] })).toEqual(['orchestrator>a', 'a>b']);
    expect(pairs({ agents, hops: [['a', 'b', 'the table']] })).toEqual(['a>b']);
    expect(pairs([...agents, { hops: ['a => b'] }, { from: 'b', to: 'a' }])).toEqual(['a>b', 'b>a']);
    expect(pairs({ agents, hops: [{ from: 'orchestrator', to: ['a', 'b'] }] })).toEqual([
      'orchestrator>a',
      'orchestrator>b',
    ]);
    const [hop] = parseWorkflow(json({ agents, hops: [{ to: 'a', recall: 'only the units' }] })).hops;
    expect(hop).toEqual({ from: 'orchestrator', to: 'a', what: 'only the units', recall: true });
  });

  it('reads agents keyed by id, and a team inside a wrapper', () => {
    const team = { agents: { a: { role: 'r', instruction: 'i' }, b: 'just do it' } };
    for (const block of [team, { workflow: team }])
      expect(parseWorkflow(json(block)).agents).toEqual([
        { id: 'a', role: 'r', instruction: 'i', contract: null },
        { id: 'b', role: '', instruction: 'just do it', contract: null },
      ]);
  });

  it('reads through remarks, fences and citations, and keeps what it has no place for', () => {
    const team = json({ agents: [{ id: 'a', role: 'r', instruction: 'i', tools: ['x'] }], note: 7 });
    const { agents, unrecognised } = parseWorkflow(`As in [1]:\n\`\`\`json\n${team}\n\`\`\`\nGood luck.`);
    expect(agents.map((a) => a.id)).toEqual(['a']);
    expect(unrecognised).toEqual([
      { path: '', text: 'As in [1]:\n' },
      { path: 'agents[0].tools', text: '["x"]' },
      { path: 'note', text: '7' },
      { path: '', text: '\nGood luck.' },
    ]);
  });

  it('names what is missing or does not fit', () => {
    const { agents, issues } = parseWorkflow(
      json({ agents: [{ role: 'r' }, 5], hops: [{ from: 'a', to: 'nobody' }, { from: 'x' }, 3] }),
    );
    expect(agents[0]?.id).toBe('agent-1');
    expect(issues).toEqual([
      'agents[0] has no id; it is shown as "agent-1".',
      'agents[0] has no instruction.',
      'agents[1] is not an object with an id, a role and an instruction.',
      'hops[1] does not say which agent it goes to.',
      'hops[2] is not a hop.',
      'hops[0] names "a", which is no agent.',
      'hops[0] names "nobody", which is no agent.',
    ]);
  });

  it('keeps text without JSON whole', () => {
    expect(parseWorkflow('plan first, then code')).toMatchObject({
      parsed: false,
      agents: [],
      unrecognised: [{ path: '', text: 'plan first, then code' }],
    });
  });
});

describe('parseWorkflow: hostile text', () => {
  it('survives depth, length, unbalanced brackets and odd keys', () => {
    const deep = 30_000;
    for (const text of [
      '['.repeat(MAX_BLOCK_BYTES),
      '{"a":'.repeat(10_000),
      `${'['.repeat(deep)}${']'.repeat(deep)}`,
      `{"agents":[{"id":"a","role":"r","instruction":"i","x":${'['.repeat(deep)}${']'.repeat(deep)}}]}`,
      '{"agents":[{"__proto__":{"id":"p"},"constructor":1,"toString":"x"}],"__proto__":{"agents":[]}}',
      `\`\`\`${' '.repeat(60_000)}x[{}]`,
      `[${'{},'.repeat(20_000)}{}]`,
      `{"agents":[{"id":"a"}],"order":[${'"a",'.repeat(15_000)}"a"]}`,
      'x'.repeat(MAX_BLOCK_BYTES + 1),
      '\ud800[\udfff{',
      '[{"id":"\\ud800"}]',
    ]) {
      const { issues } = parseWorkflow(text);
      expect(issues.length).toBeLessThanOrEqual(50);
    }
    expect(({} as Record<string, unknown>).id).toBeUndefined();
  });

  it('never throws, on any text and on any JSON in any place', () => {
    const piece = fc.constantFrom(
      '[',
      ']',
      '{',
      '}',
      '"',
      '\\',
      ':',
      ',',
      '```',
      'agents',
      '"agents":',
      '"hops":',
      'a',
    );
    fc.assert(fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => void parseWorkflow(pieces.join(''))));
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void parseWorkflow(text)));
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        const member = { id: a, role: b, instruction: a, contract: b, from: a, to: b, recall: a };
        for (const value of [
          a,
          { agents: a, hops: b },
          { agents: [member], order: [member, a, b] },
          [member, a],
          { team: a },
        ]) {
          const view = parseWorkflow(JSON.stringify(value));
          for (const agent of view.agents)
            expect([agent.id, agent.role, agent.instruction].every((t) => typeof t === 'string')).toBe(true);
          for (const hop of view.hops) expect(typeof hop.recall).toBe('boolean');
        }
      }),
    );
  });
});
