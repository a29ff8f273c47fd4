import type { AssistantMessage } from '../../common/domain/chat.ts';
import { canonicalJson, sha256 } from '../../node/hashing.ts';
import { parseObject } from './json-object.ts';

/**
 * Key of an assistant message in the sampled-token ledger, the same for the message as parsed and as a client sends it
 * back: sha256 of [trimmed content, [call id, name, arguments]...]. Arguments count as values, so key order, spacing
 * and number spelling do not matter. Reasoning does not count, since most clients drop it; call ids do, since an id
 * names one completion and two turns often make the same call.
 */
export function canonicalMessageHash(message: AssistantMessage): string {
  const calls = (message.toolCalls ?? []).map((call) => {
    const value = parseObject(call.arguments);
    return [call.id, call.name, value === null ? { text: call.arguments } : { value }];
  });
  return sha256(canonicalJson([message.content.trim(), calls]));
}
