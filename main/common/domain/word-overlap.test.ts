import { describe, expect, it } from 'vitest';
import { ngramsOf, WorkflowOverlapCounter, wordsOf, workflowTexts } from './word-overlap.ts';

describe('words', () => {
  it('are letters, digits and underscores of any script, in lower case', () => {
    expect(wordsOf('Fit_model (v2), "Été" — 漢字!')).toEqual(['fit_model', 'v2', 'été', '漢字']);
  });

  it('run on within a text and not from one to the next', () => {
    expect([...ngramsOf(['a b c', 'd e', 'f'], 2)]).toEqual(['a b', 'b c', 'd e']);
  });
});

describe('what a workflow block says', () => {
  it('is the strings of its JSON, without keys, and the text around it', () => {
    const block = 'TEAM\n{"agents": [{"role": "clerk", "steps": ["count", {"then": "add"}], "n": 3}]}\nEND';
    expect(workflowTexts(block).map((text) => text.trim())).toEqual(['TEAM', 'clerk', 'count', 'add', 'END']);
  });

  it('is the block itself where it holds no JSON', () => {
    expect(workflowTexts('just {words')).toEqual(['just {words']);
  });
});

describe('the overlap of trained text with a workflow', () => {
  const block = 'check each number against the data';
  it('counts distinct runs that were trained', () => {
    const counter = new WorkflowOverlapCounter({ block, barePrompt: 'Write a report.', ngram: 3 });
    counter.trained(['I check EACH number.', 'Again: check each number']);
    counter.trained(['against the', 'data']);
    // 6 words make 4 runs of 3; one of them was said, twice.
    expect(counter.result()).toEqual({ ngram: 3, shared: 1, ofWorkflow: 4, share: 0.25 });
  });

  it('is told as the longest passages of the workflow that were said', () => {
    const counter = new WorkflowOverlapCounter({ block: `${block}. Then sum up all.`, barePrompt: '', ngram: 3 });
    expect(counter.passages()).toEqual([]);
    counter.trained(['check each number against it', 'number against the', 'then sum up']);
    counter.trained(['Check each number.']);
    expect(counter.passages()).toEqual(['check each number against the', 'then sum up']);
  });

  it('does not count runs that the bare prompt has too', () => {
    const counter = new WorkflowOverlapCounter({ block, barePrompt: 'Check each number.', ngram: 3 });
    counter.trained(['check each number against the data']);
    expect(counter.result()).toEqual({ ngram: 3, shared: 3, ofWorkflow: 3, share: 1 });
  });

  it('is nothing for a bare prompt', () => {
    const counter = new WorkflowOverlapCounter({ block: '', barePrompt: 'Write.', ngram: 3 });
    counter.trained(['anything at all said']);
    expect(counter.result()).toEqual({ ngram: 3, shared: 0, ofWorkflow: 0, share: 0 });
  });
});
