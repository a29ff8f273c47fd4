import { describe, expect, it } from 'vitest';
import type { Message } from './chat.ts';
import { replaceTeacherPrompt, replaceTeacherPromptText } from './teacher-prompt.ts';

const user = (content: string): Message => ({ role: 'user', content });
const system: Message = { role: 'system', content: 'TEACHER' };
const tool: Message = { role: 'tool', toolCallId: 'c', content: 'TEACHER' };
const prompts = { teacherPrompt: 'TEACHER', barePrompt: 'bare', where: 'thread t' };

describe('the teacher prompt', () => {
  it('is replaced where it is the first user message, and nowhere else', () => {
    const messages = [system, user('TEACHER'), tool, user('go on')];
    expect(replaceTeacherPrompt({ messages, ...prompts })).toEqual([system, user('bare'), tool, user('go on')]);
  });

  it.each([
    ['is missing', [system, user('other')], 0],
    ['has text around it', [user(' TEACHER')], 0],
    ['comes twice', [user('TEACHER'), user('TEACHER')], 2],
    ['comes later', [user('other'), user('TEACHER')], 1],
  ])('stops where it %s', (_how, messages, matches) => {
    expect(() => replaceTeacherPrompt({ messages, ...prompts })).toThrow(
      expect.objectContaining({ code: 'invalid_input', details: { reason: 'prompt_match', matches } }),
    );
  });
});

describe('the teacher prompt inside a message of another runtime', () => {
  it('is replaced, and the text around it stays', () => {
    const messages = [system, user('date $& TEACHER files'), tool, user('go on')];
    expect(replaceTeacherPromptText({ messages, ...prompts, barePrompt: '$& bare' })).toEqual([
      system,
      user('date $& $& bare files'),
      tool,
      user('go on'),
    ]);
  });

  it.each([
    ['is missing', [user('other')], 0],
    ['comes twice in the message', [user('TEACHER TEACHER')], 2],
    ['comes again later', [user('a TEACHER'), user('b TEACHER')], 2],
    ['comes later', [user('other'), user('TEACHER')], 1],
  ])('stops where it %s', (_how, messages, matches) => {
    expect(() => replaceTeacherPromptText({ messages, ...prompts })).toThrow(
      expect.objectContaining({ details: { reason: 'prompt_match', matches } }),
    );
  });

  it('stops where overlapping places could be meant', () => {
    const given = { messages: [user('aXaXa')], teacherPrompt: 'aXa', barePrompt: 'b', where: 'thread t' };
    expect(() => replaceTeacherPromptText(given)).toThrow(
      expect.objectContaining({ details: { reason: 'prompt_match', matches: 2 } }),
    );
  });
});
