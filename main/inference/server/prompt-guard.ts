import { setImmediate } from 'node:timers/promises';
import type { ChatRequest } from '../chat/chat-format.ts';
import type { ServedModel } from '../model/served-model.ts';
import { contextOverflow } from './api-error.ts';

/** More characters per context token than this and the text is counted before it is rendered. */
const suspiciousCharsPerToken = 16;
const sliceChars = 64 * 1024;

/**
 * Rendering tokenizes the whole prompt at once, which would hold the event loop for seconds on megabytes of text. A text
 * that cannot plausibly fit is counted in slices first and refused once it is four times too long.
 */
export async function refuseHopelessPrompt(chat: ChatRequest, model: ServedModel): Promise<void> {
  const { contextSize } = model.info;
  const texts = [...chat.messages.map((message) => message.content), JSON.stringify(chat.tools)];
  const chars = texts.reduce((sum, text) => sum + text.length, 0);
  if (chars <= contextSize * suspiciousCharsPerToken) return;
  let tokens = 0;
  for (const text of texts) {
    for (let at = 0; at < text.length; at += sliceChars) {
      tokens += model.tokenize(text.slice(at, at + sliceChars), { special: false }).length;
      if (tokens > 4 * contextSize) throw contextOverflow(tokens, contextSize, true);
      await setImmediate();
    }
  }
  // Slicing only ever adds tokens, and few: what is over by half cannot fit.
  if (tokens > 1.5 * contextSize) throw contextOverflow(tokens, contextSize);
}
