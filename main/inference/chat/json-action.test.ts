import { describe, expect, it } from 'vitest';
import { actionSchema, replyLength } from './json-action.ts';
import { request, writeFile } from './testing/requests.ts';

describe('the length of a reply', () => {
  it('lets the JSON end within the tokens of the answer', () => {
    expect(replyLength(160)).toBe(288); // (160 - 16) tokens at two characters each
    expect(replyLength(20)).toBe(80);
    expect(replyLength(100_000)).toBe(2000);
    expect(replyLength(null)).toBe(2000);
  });

  it('stands in the grammar of an action', () => {
    const schema = actionSchema(request([], { tools: [writeFile], maxTokens: 160 }));
    expect(JSON.stringify(schema)).toContain('"reply":{"type":"string","maxLength":288}');
  });
});
