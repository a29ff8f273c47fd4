import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Completion } from './completion.ts';
import { StopMatcher } from './stop-matcher.ts';
import { TextStream } from './text-stream.ts';

/** Ids are byte values. */
const bytes = (ids: readonly number[]): string => new TextDecoder().decode(Uint8Array.from(ids));

describe('StopMatcher', () => {
  it('finds a stop text across pieces', () => {
    const matcher = new StopMatcher(['\n\nUser:']);
    expect(['fine\n', '\nUs', 'er'].map((piece) => matcher.push(piece))).toEqual([null, null, null]);
    expect(matcher.push(': hello')).toBe('\n\nUser:');
  });

  it('takes the match that ends first, the longest of those', () => {
    expect(new StopMatcher(['ccc', 'b']).push('abccc')).toBe('b');
    expect(new StopMatcher(['c', 'bc']).push('abc')).toBe('bc');
  });

  it('finds in any cutting what is in the whole', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 40 });
    const stops = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 4 }), {
      maxLength: 3,
    });
    fc.assert(
      fc.property(text, stops, fc.infiniteStream(fc.integer({ min: 1, max: 5 })), (whole, wanted, cuts) => {
        const matcher = new StopMatcher(wanted);
        let seen = '';
        let found: string | null = null;
        for (let at = 0; at < whole.length && found === null; ) {
          const piece = whole.slice(at, at + (cuts.next().value as number));
          at += piece.length;
          seen += piece;
          found = matcher.push(piece);
        }
        if (found === null) expect(wanted.some((stop) => whole.includes(stop))).toBe(false);
        else expect(seen).toContain(found);
      }),
    );
  });
});

describe('TextStream', () => {
  it('holds a character back until its last byte', () => {
    const stream = new TextStream(bytes);
    const euro = [...new TextEncoder().encode('a€b')];
    expect(euro.map((id) => stream.push(id))).toEqual(['a', '', '', '€', 'b']);
  });

  it('gives up on bytes that are no character', () => {
    const stream = new TextStream(bytes);
    const out = [0xf0, 0xf0, 0xf0, 0xf0].map((id) => stream.push(id));
    expect(out.slice(0, 3)).toEqual(['', '', '']);
    expect(out[3]).toMatch(/^\uFFFD+$/);
  });
});

describe('Completion', () => {
  const limits = { endIds: new Set([0]), stopTexts: ['STOP'], maxIds: 10 };
  const feed = (completion: Completion, ids: Iterable<number>): void => {
    for (const id of ids) if (completion.push(id)) return;
  };

  it('ends at an end id and keeps it', () => {
    const completion = new Completion(limits, bytes);
    feed(completion, [65, 66, 0, 67]);
    expect(completion).toMatchObject({ ids: [65, 66, 0], finishReason: 'stop', stopText: null });
  });

  it('ends when a stop text is complete', () => {
    const completion = new Completion(limits, bytes);
    feed(completion, new TextEncoder().encode('xSTOPy'));
    expect(completion).toMatchObject({ finishReason: 'stop', stopText: 'STOP' });
    expect(bytes(completion.ids)).toBe('xSTOP');
  });

  it('ends by length, and at once when nothing is left', () => {
    const completion = new Completion(limits, bytes);
    feed(completion, new Array(20).fill(65));
    expect(completion).toMatchObject({ finishReason: 'length', ids: new Array(10).fill(65) });
    expect(new Completion({ ...limits, maxIds: 0 }, bytes).finishReason).toBe('length');
  });
});
