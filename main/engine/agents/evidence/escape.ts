import { escapeName, showInvisible } from '../../workspace/visible-text.ts';

/**
 * Makes text that came out of a workspace or a model visible and harmless inside a prompt. Every change can be seen:
 * invisible characters become escapes, a bracket that would start a chat control token becomes "‹", and a line that
 * looks like one of our own frame lines gets a leading backslash.
 */

/** Starts of the lines that only the harness may write: fences, file headers, cut marks. */
export const FENCE_MARK = '%%%%';
export const FILE_MARK = '@@';
export const CUT_MARK = '[cut:';

export { escapeName, showInvisible };

// `<|...|>` covers most families; the rest are the bare tags that chat templates or tokenizers treat as control.
const controlStart =
  /<(?=[|｜])|<(?=\/?(?:think|thinking|tools?|tool_call|tool_response|function|parameter|system|user|assistant|s|bos|eos|pad|unk|mask|image)\b[^<>\n]{0,80}>)|<(?=\/?[a-z]+(?:_[a-z]+)+>)|<(?=<\/?SYS>>)/giu;

/** Chat control tokens lose their opening bracket; lengths do not change. */
export const defuseTokens = (text: string): string => text.replace(controlStart, '‹').replace(/\[(?=\/?INST\])/gi, '⟦');

const imitatesFrame = (line: string): boolean => {
  const start = line.slice(0, 200).normalize('NFKC').trimStart().toLowerCase();
  return start.startsWith(FENCE_MARK) || start.startsWith(FILE_MARK) || start.startsWith(CUT_MARK);
};

/** Lines that imitate the harness's own get a leading backslash. Apply after cutting: a cut makes new line starts. */
export const defuseLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => (imitatesFrame(line) ? `\\${line}` : line))
    .join('\n');

/** Everything at once, for text that is not cut afterwards. */
export const defuse = (text: string): string => defuseLines(defuseTokens(showInvisible(text)));
