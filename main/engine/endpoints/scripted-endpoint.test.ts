import { describe, expect, it } from 'vitest';
import type { Message } from '../../common/domain/chat.ts';
import { promptOf } from '../../common/domain/completion-chain.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { CompletionRecord as RecordSchema } from '../../common/protocol/inference.ts';
import { createScriptedEndpoints, type ScriptedEndpointOptions } from './scripted-endpoint.ts';

const sampling = { temperature: 0, topP: 1, topK: 1, seed: 1, maxTokens: 100, thinking: false };

async function open(options: Partial<ScriptedEndpointOptions> = {}) {
  const records: CompletionRecord[] = [];
  const provider = createScriptedEndpoints({
    answer: (owner, request) => ({ role: 'assistant', content: `${owner} ${request.messages.length}` }),
    onRecord: (record) => Promise.resolve(void records.push(record)),
    ...options,
  });
  return { endpoint: await provider.open('me'), records };
}

describe('scripted endpoint', () => {
  it('records a conversation as a chain whose prompts can be rebuilt', async () => {
    const { endpoint, records } = await open();
    const messages: Message[] = [];
    const prompts: string[] = [];
    for (const content of ['a', 'b', 'c']) {
      messages.push({ role: 'user', content });
      const completion = await endpoint.complete({ messages: [...messages], sampling, thread: 't' });
      messages.push(completion.message);
    }
    const whole = new Map<string, number[]>();
    for (const record of records) {
      expect(RecordSchema.parse(record)).toEqual(record);
      const prompt = promptOf(record, whole.get(record.parentCompletionId ?? '') ?? null);
      prompts.push(Buffer.from(prompt).toString());
      whole.set(record.completionId, [...prompt, ...record.sampledIds]);
    }
    expect(prompts.at(-1)).toBe('\nuser: a\nassistant: me 1\nuser: b\nassistant: me 3\nuser: c\nassistant: ');
    expect(records[2]?.parentCompletionId).toBe(records[1]?.completionId);
    expect(records[2]?.promptTail).toHaveLength('user: c\nassistant: '.length);
  });

  it('says tool_calls, or what the script says', async () => {
    const toolCalls = [{ id: '1', name: 'f', arguments: '{}' }];
    const calling = await open({ answer: () => ({ role: 'assistant', content: '', toolCalls }) });
    const request = { messages: [{ role: 'user', content: 'a' } as const], sampling, thread: 't' };
    expect((await calling.endpoint.complete(request)).finishReason).toBe('tool_calls');
    const cut = await open({
      answer: () => ({ message: { role: 'assistant', content: 'x' }, finishReason: 'length' }),
    });
    expect((await cut.endpoint.complete(request)).finishReason).toBe('length');
  });

  it('honours abort, also where the script does not listen, and records nothing then', async () => {
    const { endpoint, records } = await open({ answer: () => new Promise(() => undefined) });
    const abort = new AbortController();
    const request = {
      messages: [{ role: 'user', content: 'a' } as const],
      sampling,
      thread: 't',
      signal: abort.signal,
    };
    const asked = endpoint.complete(request);
    abort.abort();
    await expect(asked).rejects.toMatchObject({ code: 'cancelled' });
    const slow = await open({ latencyMs: 60_000 });
    await expect(slow.endpoint.complete(request)).rejects.toMatchObject({ code: 'cancelled' });
    expect(records).toEqual([]);
  });

  it('fails as a real one does: overflow, script errors, unrecorded, closed', async () => {
    const request = { messages: [{ role: 'user', content: 'a' } as const], sampling, thread: 't' };
    const small = await open({ contextTokens: 20 });
    await expect(small.endpoint.complete(request)).rejects.toMatchObject({
      code: 'invalid_input',
      details: { reason: 'context_length_exceeded', promptTokens: 20, contextTokens: 20 },
    });
    const unrecorded = await open({ onRecord: () => Promise.reject(new Error('disk full')) });
    await expect(unrecorded.endpoint.complete(request)).rejects.toThrow('disk full');
    const { endpoint } = await open();
    await endpoint.close();
    await expect(endpoint.complete(request)).rejects.toMatchObject({ code: 'infrastructure' });
  });
});
