import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fitTokens, headAndTail, plainText } from './tool-output.ts';

const mark = (bytes: number) => `[${bytes}]`;

describe('headAndTail', () => {
  it('keeps what fits and cuts the middle of what does not', () => {
    expect(headAndTail('abcdef', 6, mark)).toBe('abcdef');
    expect(headAndTail('abcdefgh', 4, mark)).toBe('ab\n[4]\ngh');
  });

  it('cuts between characters', () => {
    // "é" has two bytes: of 3 + 2 bytes kept, the head gives up half an é.
    expect(headAndTail('ééééé', 5, mark)).toBe('é\n[6]\né');
  });

  it('accounts for every byte and never makes a broken character', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 200 }), fc.nat(300), (text, bytes) => {
        const cut = headAndTail(text, bytes, (left) => `<<${left}>>`);
        const [head, left, tail] = cut.split(/\n<<(\d+)>>\n/);
        if (left === undefined) {
          expect(cut).toBe(text);
          return;
        }
        expect(text.startsWith(head ?? '')).toBe(true);
        expect(text.endsWith(tail ?? '')).toBe(true);
        const kept = Buffer.byteLength(head ?? '') + Buffer.byteLength(tail ?? '');
        expect(kept).toBeLessThanOrEqual(bytes);
        expect(kept + Number(left)).toBe(Buffer.byteLength(text));
      }),
    );
  });
});

describe('plainText', () => {
  it('leaves no control character but tab and newline, and is stable', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const plain = plainText(text);
        // biome-ignore lint/suspicious/noControlCharactersInRegex: what must be absent
        expect(plain).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/);
        expect(plainText(plain)).toBe(plain);
      }),
    );
  });

  it('replaces lone surrogates', () => {
    expect(plainText('a\ud800b')).toBe('a\uFFFDb');
  });
});

describe('fitTokens', () => {
  /** A tokenizer at its worst: each byte a token. */
  const bytes = async (text: string) => Buffer.byteLength(text);

  it('fits dense text too, and counts what it shows', async () => {
    const fitted = await fitTokens('1'.repeat(100_000), { tokens: 200, countTokens: bytes, mark });
    expect(fitted.tokens).toBeLessThanOrEqual(200);
    expect(fitted.tokens).toBe(Buffer.byteLength(fitted.shown));
    expect(fitted.shown.length).toBeGreaterThan(100);
  });

  it('does not count what cannot fit: the tokenizer never sees the whole of a huge text', async () => {
    let longest = 0;
    const countTokens = async (text: string) => {
      longest = Math.max(longest, text.length);
      return Math.ceil(text.length / 4);
    };
    await fitTokens('word '.repeat(1_000_000), { tokens: 1000, countTokens, mark });
    expect(longest).toBeLessThan(5000);
  });

  it('shows short text whole', async () => {
    expect(await fitTokens('ok', { tokens: 48, countTokens: bytes, mark })).toEqual({ shown: 'ok', tokens: 2 });
  });
});
