/**
 * What the model sees of a tool result. The whole body goes to the observer; this is its bounded view. Results are text
 * written by commands: control sequences are taken out, so that a terminal trick or a NUL never reaches a prompt.
 */

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const ESCAPE_SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above; tab and newline stay
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Text without terminal sequences and control characters; lone surrogates and other controls become U+FFFD. */
export function plainText(text: string): string {
  const plain = text.replace(ESCAPE_SEQUENCE, '').replace(/\r\n?/g, '\n').replace(CONTROL, '\uFFFD');
  // UTF-8 has no lone surrogates: the round trip replaces them.
  return Buffer.from(plain, 'utf8').toString('utf8');
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/**
 * Head and tail of `text`, at most `bytes` UTF-8 bytes of it, cut between characters, with `mark(left out bytes)` on a
 * line of its own between them. Text that fits is returned as it is.
 */
export function headAndTail(text: string, bytes: number, mark: (leftOut: number) => string): string {
  const whole = Buffer.from(text, 'utf8');
  if (whole.length <= bytes) return text;
  let headEnd = Math.ceil(bytes / 2);
  while (headEnd > 0 && isContinuation(whole[headEnd])) headEnd -= 1;
  let tailStart = whole.length - Math.floor(bytes / 2);
  while (tailStart < whole.length && isContinuation(whole[tailStart])) tailStart += 1;
  const head = whole.toString('utf8', 0, headEnd);
  const tail = whole.toString('utf8', tailStart);
  return `${head}\n${mark(tailStart - headEnd)}\n${tail}`;
}

export interface ShownText {
  readonly shown: string;
  readonly tokens: number;
}

/** Text yields about this many bytes a token: the first guess, corrected by counting. */
const BYTES_PER_TOKEN = 4;
const ATTEMPTS = 5;

/** The longest head and tail of `text` found within `tokens` tokens, as the model's tokenizer counts them. */
export async function fitTokens(
  text: string,
  options: {
    readonly tokens: number;
    readonly countTokens: (text: string) => Promise<number>;
    readonly mark: (leftOut: number) => string;
  },
): Promise<ShownText> {
  const plain = plainText(text);
  let bytes = options.tokens * BYTES_PER_TOKEN;
  for (let attempt = 0; ; attempt++) {
    const shown = headAndTail(plain, bytes, options.mark);
    const tokens = await options.countTokens(shown);
    if (tokens <= options.tokens || attempt === ATTEMPTS) return { shown, tokens };
    // The last attempt allows one byte a token, which byte-level vocabularies cannot exceed but for the mark.
    const scaled = Math.floor((Math.min(bytes, Buffer.byteLength(plain)) * options.tokens * 0.9) / tokens);
    bytes = attempt === ATTEMPTS - 1 ? Math.floor(options.tokens / 2) : Math.max(1, scaled);
  }
}
