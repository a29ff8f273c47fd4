import type { AssistantMessage, ToolCall } from '../../../common/domain/chat.ts';
import { canonicalJson, sha256 } from '../../../node/hashing.ts';

const REPEATED_CALLS = 4;
const REPEATED_ANSWERS = 3;

/** Tells when a thread makes no headway: it repeats itself word for word and nothing changes. */
export interface LoopDetector {
  /** True when the same call with the same arguments gave the same result four times in a row. */
  called(call: ToolCall, result: string): boolean;
  /** True when the same words with the same calls came three times in a row. Answers without words do not count. */
  answered(message: AssistantMessage): boolean;
}

export function createLoopDetector(): LoopDetector {
  const calls = createRun(REPEATED_CALLS);
  const answers = createRun(REPEATED_ANSWERS);
  return {
    called: (call, result) => calls.next(sha256(`${fingerprint(call)}\n${result}`)),
    answered: ({ content, toolCalls = [] }) => {
      const words = content.trim();
      return answers.next(words === '' ? null : sha256(`${words}\n${toolCalls.map(fingerprint).join('\n')}`));
    },
  };
}

function createRun(length: number): { next(key: string | null): boolean } {
  let last: string | null = null;
  let count = 0;
  return {
    next: (key) => {
      count = key !== null && key === last ? count + 1 : 1;
      last = key;
      return key !== null && count >= length;
    },
  };
}

/** Name and arguments of a call; the order of keys and white space do not make it a different one. */
function fingerprint(call: ToolCall): string {
  try {
    return canonicalJson([call.name, JSON.parse(call.arguments)]);
  } catch {
    // Broken JSON compares as text.
    return JSON.stringify([call.name, call.arguments]);
  }
}
