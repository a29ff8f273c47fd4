import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { allocate, evidenceBudget, fitToTokens } from './budget.ts';
import { cutLines, cutMiddle, takeEnd, takeStart } from './cut.ts';
import { cutText } from './fit-text.ts';

describe('evidenceBudget', () => {
  it('is half of what output, safety and fixed text leave', () => {
    // (262144 - 49152 - 8192 - 3001) / 2 = 100899.5
    const paper = { contextTokens: 262_144, outputTokens: 49_152, safetyTokens: 8192, fixedTokens: 3001 };
    expect(evidenceBudget(paper)).toBe(100_899);
  });

  it('says by how much a context is too small', () => {
    // (1000 - 500 - 0 - 400) / 2 = 50, 110 a side short
    const small = { contextTokens: 1000, outputTokens: 500, safetyTokens: 0, fixedTokens: 400 };
    expect(() => evidenceBudget(small)).toThrow(/by 220 tokens/);
  });
});

describe('allocate', () => {
  it('gives shares by weight and passes on what is not needed', () => {
    const wants = [
      { need: 100, weight: 1 },
      { need: 10, weight: 1 },
      { need: 100, weight: 2 },
    ];
    // shares 30, 10 of 30, 60; the 20 left go to the first
    expect(allocate(120, wants)).toEqual([50, 10, 60]);
  });

  it('never exceeds the total or a need, and fills everything that fits', () => {
    const want = fc.record({ need: fc.nat(5000), weight: fc.integer({ min: 1, max: 9 }) });
    fc.assert(
      fc.property(fc.nat(20_000), fc.array(want, { maxLength: 8 }), (total, wants) => {
        const given = allocate(total, wants);
        const sum = given.reduce((a, b) => a + b, 0);
        const needed = wants.reduce((a, { need }) => a + need, 0);
        expect(sum).toBe(Math.min(total, needed));
        for (const [index, share] of given.entries()) expect(share).toBeLessThanOrEqual(wants[index]!.need);
      }),
    );
  });
});

describe('fitToTokens', () => {
  it('fits every budget and uses most of it, whatever a character costs', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 40, max: 5000 }),
        fc.double({ min: 0.3, max: 4, noNaN: true }),
        async (maxTokens, perToken) => {
          const text = 'word '.repeat(4000);
          const countTokens = (part: string): number => Math.ceil(part.length / perToken);
          const render = (room: number) => cutText(text, { room, what: 'x' });
          const fit = await fitToTokens({ render, fullCharacters: text.length, maxTokens, countTokens });
          const least = countTokens(render(0).text);
          if (fit === null) {
            expect(least).toBeGreaterThan(maxTokens);
            return;
          }
          expect(fit.tokens).toBeLessThanOrEqual(maxTokens);
          expect(fit.tokens).toBe(countTokens(fit.rendering.text));
          if (!fit.rendering.complete) expect(fit.tokens).toBeGreaterThan(maxTokens * 0.6 - least - 2);
        },
      ),
    );
  });
});

describe('cuts', () => {
  it('keep beginning and end, never half a character, and count what they show', () => {
    expect(takeStart('a😀b', 2)).toBe('a');
    expect(takeEnd('a😀b', 2)).toBe('b');
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 400 }), fc.nat(400), (text, room) => {
        const { start, end, shown } = cutMiddle(text, room);
        expect(text.startsWith(start) && text.endsWith(end)).toBe(true);
        expect(shown).toBe(start.length + end.length);
        expect(start + end).not.toMatch(/\p{Surrogate}/u);
        if (shown < text.length) expect(shown).toBeLessThanOrEqual(room);
      }),
    );
  });

  it('list whole lines and count the rest', () => {
    const lines = Array.from({ length: 10 }, (_, i) => `line ${i} ${'x'.repeat(20)}`);
    expect(cutLines(lines, 120, 'entries').lines).toEqual([...lines.slice(0, 2), '[cut: 2 of 10 entries shown]']);
  });
});
