import { type CountTokens, fitToTokens, type Sized } from './budget.ts';
import { cutLine, cutMiddle, type Truncation } from './cut.ts';

export interface FittedText extends Sized {
  readonly truncations: readonly Truncation[];
}

/** A text cut in its middle to about `room` characters, with a counted mark. `defused` is applied to each part kept. */
export function cutText(
  text: string,
  options: { readonly room: number; readonly what: string; readonly defused?: (part: string) => string },
): FittedText {
  const { room, what, defused = (part: string) => part } = options;
  const cut = cutMiddle(text, room);
  if (cut.shown === text.length) return { text: defused(text), complete: true, truncations: [] };
  const mark = cutLine(cut.shown, text.length, 'characters');
  const lines = [defused(cut.start), mark, defused(cut.end)].filter((line) => line !== '');
  const truncations = [{ what, unit: 'characters' as const, shown: cut.shown, total: text.length }];
  return { text: lines.join('\n'), complete: false, truncations };
}

/** A text of at most `maxTokens` tokens; trusted text, so nothing is defused. */
export async function fitText(
  text: string,
  options: { readonly maxTokens: number; readonly countTokens: CountTokens },
): Promise<FittedText> {
  const render = (room: number): FittedText => cutText(text, { room, what: 'task' });
  const fit = await fitToTokens({ ...options, render, fullCharacters: text.length });
  return fit?.rendering ?? render(0);
}
