import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseWorkflow, validateBlock } from '../../../common/domain/workflow-block.ts';
import { answerProblems, blockOf, sameDesign } from './proposal.ts';

const words = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 });
const agent = fc.record({ agent_id: words, role: words, instruction: words, contract: words });
const hop = fc.record({
  from: fc.integer({ min: -1, max: 5 }),
  to: fc.integer({ min: -1, max: 5 }),
  handoff: words,
  recall: fc.boolean(),
});
const answers = fc.record({
  changes: words,
  reasons: words,
  evidence_used: words,
  agents: fc.array(agent, { minLength: 1, maxLength: 4 }),
  hops: fc.array(hop, { minLength: 1, maxLength: 6 }),
  expected_impact: words,
  checks: words,
});

describe('blockOf', () => {
  it('writes a usable block, whose view holds exactly the plan, for every answer without problems', () => {
    fc.assert(
      fc.property(answers, (answer) => {
        fc.pre(answerProblems(answer).length === 0);
        const block = blockOf(answer);
        expect(validateBlock(block)).toEqual([]);
        const view = parseWorkflow(block);
        expect({ issues: view.issues, unrecognised: view.unrecognised }).toEqual({ issues: [], unrecognised: [] });
        expect(view.agents.map(({ role }) => role)).toEqual(answer.agents.map(({ role }) => role.trim()));
        expect(view.hops).toHaveLength(answer.hops.length);
        for (const [index, { recall }] of answer.hops.entries())
          if (recall) expect(view.hops[index]?.recall).toBe(true);
        expect(blockOf(answer)).toBe(block);
        expect(sameDesign(block, JSON.stringify(JSON.parse(block)))).toBe(true);
      }),
      { numRuns: 300 },
    );
  });
});

describe('sameDesign', () => {
  it('looks through spaces and key order, and compares prose as text', () => {
    expect(sameDesign('{"a":1,"b":2}', '{ "b": 2, "a": 1 }')).toBe(true);
    expect(sameDesign('{"a":1}', '{"a":2}')).toBe(false);
    expect(sameDesign('Call a, then b.\n', 'Call a, then b.')).toBe(true);
    expect(sameDesign('Call a.', '{"a":1}')).toBe(false);
  });
});
