/** Colours of a terminal, by meaning. Plain output has none, so nothing may be said by colour alone. */
export interface Paint {
  readonly strong: (text: string) => string;
  readonly trained: (text: string) => string;
  readonly found: (text: string) => string;
  readonly overlap: (text: string) => string;
  readonly faint: (text: string) => string;
  readonly removed: (text: string) => string;
}

const plain = (text: string): string => text;
export const noPaint: Paint = {
  strong: plain,
  trained: plain,
  found: plain,
  overlap: plain,
  faint: plain,
  removed: plain,
};

const sgr = (codes: string) => (text: string) => (text === '' ? '' : `\u001b[${codes}m${text}\u001b[0m`);
export const terminalPaint: Paint = {
  strong: sgr('1'),
  trained: sgr('32'),
  found: sgr('1;4;35'),
  overlap: sgr('33'),
  faint: sgr('2'),
  removed: sgr('9;31'),
};

/** Colour on a terminal, unless NO_COLOR is set; elsewhere only with FORCE_COLOR (for `| less -R`). */
export function paintOf(stream: { readonly isTTY?: boolean | undefined }, env: NodeJS.ProcessEnv): Paint {
  if (env['NO_COLOR']) return noPaint;
  const forced = env['FORCE_COLOR'] !== undefined && env['FORCE_COLOR'] !== '0';
  return stream.isTTY || forced ? terminalPaint : noPaint;
}
