import { createHash } from 'node:crypto';
import { FENCE_MARK } from './escape.ts';

export interface Fenced {
  readonly text: string;
  readonly nonce: string;
}

/**
 * Puts untrusted text between two lines that it cannot contain: they carry a nonce derived from the text itself, so that
 * equal evidence gives equal bytes and a workspace cannot know its nonce in advance. `content` must be defused
 * (escape.ts), so that no line of it begins with the fence mark either.
 */
export function fence(label: string, content: string): Fenced {
  let nonce = '';
  for (let round = 0; nonce === '' || content.includes(nonce); round++)
    nonce = createHash('sha256').update(`${round}\n${content}`).digest('hex').slice(0, 12);
  const text = `${FENCE_MARK} BEGIN ${label} ${nonce}\n${content}\n${FENCE_MARK} END ${label} ${nonce}`;
  return { text, nonce };
}
