// Other than newline and tab: controls, bidi and zero-width characters, line separators, tag characters, lone
// surrogates and the variation selectors that only serve to hide text (emoji need U+FE0E and U+FE0F).
const invisible =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f\u2028-\u202f\u205f-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}\ud800-\udfff]|\u034f|[\ufe00-\ufe0d]|[\u180b-\u180d\u180f]|\u200d/gu;

const escapeCharacter = (character: string): string => {
  const code = character.codePointAt(0) ?? 0;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
};

/** Shows invisible characters; newlines and tabs stay, CRLF becomes a newline. */
export const showInvisible = (text: string): string => text.replace(/\r\n/g, '\n').replace(invisible, escapeCharacter);

const hexByte = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`;

/** A file name on one line. A backslash is doubled, so different names stay different; bytes that are not UTF-8 show as \\xNN. */
export function escapeName(name: Uint8Array | string): string {
  const bytes = Buffer.from(typeof name === 'string' ? Buffer.from(name, 'utf8') : name);
  const text = bytes.toString('utf8');
  if (!Buffer.from(text, 'utf8').equals(bytes))
    return [...bytes]
      .map((byte) => (byte === 0x5c ? '\\\\' : byte < 0x20 || byte > 0x7e ? hexByte(byte) : String.fromCharCode(byte)))
      .join('');
  return text
    .replace(/\\/g, '\\\\')
    .replace(/[\t\n\r]/g, (character) => hexByte(character.charCodeAt(0)))
    .replace(invisible, escapeCharacter);
}
