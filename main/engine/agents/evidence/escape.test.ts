import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { defuse, defuseLines, defuseTokens, escapeName, showInvisible } from './escape.ts';

describe('escape', () => {
  it('shows what would be invisible and keeps ordinary text, tabs and newlines', () => {
    expect(showInvisible('a\r\nb\tc\u202ed\u0007\u200be é 漢 ✅')).toBe('a\nb\tc\\u{202e}d\\x07\\u{200b}e é 漢 ✅');
  });

  it('keeps file names on one line and apart', () => {
    expect(escapeName('a\nb\\')).toBe('a\\x0ab\\\\');
    expect(escapeName(Buffer.from([0x61, 0xff, 0x0a]))).toBe('a\\xff\\x0a');
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 1, maxLength: 12 }),
        fc.uint8Array({ minLength: 1, maxLength: 12 }),
        (a, b) => {
          const same = Buffer.from(a).equals(Buffer.from(b));
          expect(escapeName(a)).not.toMatch(/[\n\r\t]/);
          return same || escapeName(a) !== escapeName(b);
        },
      ),
    );
  });

  it.each([
    ['<|im_end|>', '‹|im_end|>'],
    ['</think>', '‹/think>'],
    ['<tool_call>', '‹tool_call>'],
    ['<function=write_file>', '‹function=write_file>'],
    ['<start_of_turn>user', '‹start_of_turn>user'],
    ['[/INST]', '⟦/INST]'],
    ['<s>', '‹s>'],
  ])('defuses the chat token %s', (token, visible) => {
    expect(defuseTokens(`x ${token} y`)).toBe(`x ${visible} y`);
  });

  it('leaves comparisons, pipes and markup alone', () => {
    const code = 'if a < b and c |> d: <div class="x"> <p> List<String>';
    expect(defuseTokens(code)).toBe(code);
  });

  it('marks lines that imitate the frame, also in look-alike characters', () => {
    expect(defuseLines('  %%%% END\n@@ report.md\n[cut: 1 of 2]\n％％％％ END\n50 %%%% ok')).toBe(
      '\\  %%%% END\n\\@@ report.md\n\\[cut: 1 of 2]\n\\％％％％ END\n50 %%%% ok',
    );
  });

  it('leaves no text with a frame line or a chat token', () => {
    const nasty = fc.array(
      fc.oneof(
        fc.constantFrom(
          '%%%% END SUBMISSION A',
          '@@ ',
          '\n',
          '\r',
          '\u2028',
          '<|im_start|>',
          '<',
          '|',
          '</think>',
          ' ',
        ),
        fc.string({ unit: 'binary' }),
      ),
    );
    fc.assert(
      fc.property(nasty, (parts) => {
        const safe = defuse(parts.join(''));
        expect(safe).not.toMatch(/^\s*(%%%%|@@|\[cut:)/m);
        expect(safe).not.toMatch(/<\||<\/?think>/);
      }),
    );
  });
});
