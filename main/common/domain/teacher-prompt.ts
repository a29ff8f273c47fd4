import { MassError } from '../base/errors.ts';
import type { Message } from './chat.ts';

export interface PromptRemoval {
  readonly messages: readonly Message[];
  readonly teacherPrompt: string;
  readonly barePrompt: string;
  /** names the conversation in errors */
  readonly where: string;
}

/**
 * The orchestrator's conversation with the bare prompt in place of the teacher prompt. The first user message must be the
 * teacher prompt, whole, and no other user message may be it. Errors: `invalid_input` with details.matches otherwise.
 */
export function replaceTeacherPrompt({ messages, teacherPrompt, barePrompt, where }: PromptRemoval): Message[] {
  const users = messages.filter((message) => message.role === 'user');
  const matches = users.filter((message) => message.content === teacherPrompt).length;
  if (matches !== 1 || users[0]?.content !== teacherPrompt) throw noMatch(where, matches);
  const at = messages.findIndex((message) => message.role === 'user');
  return messages.map((message, i) => (i === at ? { role: 'user', content: barePrompt } : message));
}

/**
 * The same for a trace that another runtime made, which may put text of its own around the prompt: the teacher prompt
 * must occur exactly once in the first user message, and in no other. Everything around it stays.
 */
export function replaceTeacherPromptText({ messages, teacherPrompt, barePrompt, where }: PromptRemoval): Message[] {
  const counts = messages.map((message) => (message.role === 'user' ? occurrences(message.content, teacherPrompt) : 0));
  const at = messages.findIndex((message) => message.role === 'user');
  const matches = counts.reduce((total, count) => total + count, 0);
  if (matches !== 1 || counts[at] !== 1) throw noMatch(where, matches);
  return messages.map((message, i) => {
    if (i !== at) return message;
    const from = message.content.indexOf(teacherPrompt);
    const after = message.content.slice(from + teacherPrompt.length);
    return { role: 'user', content: message.content.slice(0, from) + barePrompt + after };
  });
}

function occurrences(text: string, wanted: string): number {
  if (wanted === '') return 0;
  let count = 0;
  // Overlapping ones count too: which of them would be replaced is then not clear.
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + 1)) count++;
  return count;
}

function noMatch(where: string, matches: number): MassError {
  return new MassError(
    'invalid_input',
    `${where} must begin with the prompt it was given and have it once, but has it ${matches} times where it is looked for; the workflow text cannot be removed, so leave this episode out of the selection.`,
    { details: { reason: 'prompt_match', matches } },
  );
}
