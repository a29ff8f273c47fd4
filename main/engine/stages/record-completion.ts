import { MassError } from '../../common/base/errors.ts';
import type { Message } from '../../common/domain/chat.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { canonicalJson, sha256 } from '../../node/hashing.ts';
import type { Store } from '../store/store.ts';

/**
 * Makes a completion durable: its event, row and bodies commit together. Recording the same one twice changes nothing.
 * The record's `thread` must be a thread of the store, started before it asked.
 */
export function recordCompletion(store: Store, record: CompletionRecord): void {
  if (store.threads.completionById(record.completionId)) return;
  const thread = store.threads.byId(record.thread);
  if (!thread) throw new MassError('internal', `A completion came for the unknown thread ${record.thread}.`);
  store.appendWith(() => {
    const { artifacts } = store;
    const parent = record.parentCompletionId ? store.threads.completionById(record.parentCompletionId) : undefined;
    if (record.parentCompletionId && !parent)
      throw new MassError('internal', `Completion ${record.completionId} refers to one that was never recorded.`);
    const chain = conversationChain([...record.messages, record.message]);
    const messagePrefix = parent ? Math.max(0, chain.indexOf(parent.conversationHash) + 1) : 0;
    return [
      {
        type: 'completion.recorded',
        completionId: record.completionId,
        requestId: record.requestId,
        experimentId: thread.experimentId,
        threadId: thread.threadId,
        parentCompletionId: record.parentCompletionId,
        parentPrefix: record.parentPrefix,
        promptTailHash: artifacts.putIds(record.promptTail),
        promptTokens: record.usage.promptTokens,
        sampledHash: artifacts.putIds(record.sampledIds),
        messagePrefix,
        messagesTailHash: artifacts.putJson(record.messages.slice(messagePrefix)),
        conversationHash: chain[chain.length - 1] as string,
        toolsHash: record.tools.length > 0 ? artifacts.putJson(record.tools) : null,
        answerHash: artifacts.putJson(record.message),
        finishReason: record.finishReason,
        sampling: record.sampling,
        usage: record.usage,
        ledgerMisses: record.ledgerMisses,
        resumedAt: record.resumedAt,
        modelSha256: record.modelSha256,
        adapterSha256: record.adapterSha256,
        queueMs: record.queueMs,
        prefillMs: record.prefillMs,
        decodeMs: record.decodeMs,
      },
    ];
  });
}

/** Element i is the hash of messages 0..i: equal hashes mean equal conversations. */
function conversationChain(messages: readonly Message[]): string[] {
  let hash = '';
  return messages.map((message) => {
    hash = sha256(hash + canonicalJson(message));
    return hash;
  });
}

/** The exact prompt and sampled ids of a completion, rebuilt from its chain of parents. */
export function completionIds(store: Store, completionId: string): { prompt: number[]; sampled: number[] } {
  const links: { tail: number[]; prefix: number; sampled: number[] }[] = [];
  for (let next: string | null = completionId; next !== null; ) {
    const row = store.threads.completionById(next);
    if (!row) throw new MassError('not_found', `Completion ${next} is not in this data folder.`);
    const { artifacts } = store;
    links.push({
      tail: artifacts.ids(row.promptTailHash),
      prefix: row.parentPrefix,
      sampled: artifacts.ids(row.sampledHash),
    });
    next = row.parentCompletionId;
  }
  let prompt: number[] = [];
  let sampled: number[] = [];
  for (const link of links.reverse()) {
    prompt = [...[...prompt, ...sampled].slice(0, link.prefix), ...link.tail];
    sampled = link.sampled;
  }
  return { prompt, sampled };
}

/** The messages of a completion's request, rebuilt the same way. */
export function completionMessages(store: Store, completionId: string): Message[] {
  const tails: { tail: Message[]; answer: Message; prefix: number }[] = [];
  for (let next: string | null = completionId; next !== null; ) {
    const row = store.threads.completionById(next);
    if (!row) throw new MassError('not_found', `Completion ${next} is not in this data folder.`);
    const tail = store.artifacts.json(row.messagesTailHash) as Message[];
    tails.push({ tail, answer: store.artifacts.json(row.answerHash) as Message, prefix: row.messagePrefix });
    if (row.messagePrefix === 0) break;
    next = row.parentCompletionId;
  }
  let messages: Message[] = [];
  let answer: Message[] = [];
  for (const link of tails.reverse()) {
    messages = [...[...messages, ...answer].slice(0, link.prefix), ...link.tail];
    answer = [link.answer];
  }
  return messages;
}
