import type { AssistantMessage, Message } from '../../common/domain/chat.ts';
import type { CompletionRequest } from '../endpoints/endpoint.ts';

/**
 * A model whose words are a pure function of what it is asked, for tests of the cycle's logic. A workflow carries a
 * level; runs write a report whose quality follows from it (none 0, level 1: 1, level 2: 2, level 3: 1), or from the
 * request's seed when collecting; the evaluator prefers the higher quality; the proposer goes one level up.
 */
const qualityOfLevel = [0, 1, 2, 1];
const levels = (text: string): number[] => [...text.matchAll(/LEVEL-(\d+)/g)].map((match) => Number(match[1]));
const textOf = (messages: readonly Message[]): string => messages.map((message) => message.content).join('\n');
const say = (content: string): AssistantMessage => ({ role: 'assistant', content });

export const scriptedTeam = (owner: string, request: CompletionRequest): AssistantMessage => {
  if (owner.startsWith('attempt:')) return orchestrate(request.messages, request.sampling.seed);
  if (owner.startsWith('presentation:')) return decide(textOf(request.messages));
  return design(textOf(request.messages));
};

function orchestrate(messages: readonly Message[], seed: number): AssistantMessage {
  if (messages.some((message) => message.role === 'tool')) return say('The report is written.');
  const prompt = textOf(messages);
  const collecting = prompt.includes('How to carry this out');
  const quality = collecting ? 10 + (seed % 1000) : (qualityOfLevel[Math.max(0, ...levels(prompt))] ?? 0);
  const content = `# Report\n\nquality: ${quality}\n`;
  return {
    role: 'assistant',
    content: '',
    toolCalls: [{ id: 'call_1', name: 'write_file', arguments: JSON.stringify({ path: 'report.md', content }) }],
  };
}

function decide(text: string): AssistantMessage {
  const [a = 0, b = 0] = [...text.matchAll(/quality: (\d+)/g)].map((match) => Number(match[1]));
  const verdict = a === b ? 'tie' : a > b ? 'A' : 'B';
  return say(JSON.stringify({ rationale: `A has ${a} and B has ${b}.`, citations: ['report.md'], verdict }));
}

function design(text: string): AssistantMessage {
  const level = Math.max(...levels(text)) + 1;
  return say(
    JSON.stringify({
      changes: `go to level ${level}`,
      reasons: 'the report was thin',
      evidence_used: 'report.md',
      agents: [
        { agent_id: 'writer', role: 'writer', instruction: `Write at LEVEL-${level}.`, contract: 'report.md exists' },
      ],
      hops: [{ from: 0, to: 1, handoff: 'write the report', recall: false }],
      expected_impact: 'a better report',
      checks: 'report.md is there',
    }),
  );
}
