import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { choiceOfPerson, chooseCheckpoint } from './checkpoint-choice.ts';

const validated = (...pairs: [number, number | null][]) => pairs.map(([step, loss]) => ({ step, loss }));

describe('the checkpoint to export', () => {
  it('is the lowest validation loss among steps both saved and validated', () => {
    const validations = validated([0, 1.9], [150, 1.2], [300, 0.9], [450, 0.7], [480, 1.0]);
    // 450 is lowest but was not saved; 50 was saved but not validated
    expect(chooseCheckpoint({ saved: [50, 100, 150, 300, 480], validations })).toEqual({
      step: 300,
      loss: 0.9,
      by: 'lowest-validation-loss',
    });
  });

  it('is never step 0, even when training made everything worse', () => {
    expect(chooseCheckpoint({ saved: [0, 4, 8], validations: validated([0, 1], [4, 3], [8, 2]) }).step).toBe(8);
  });

  it('is the earlier of equal losses', () => {
    expect(chooseCheckpoint({ saved: [4, 8], validations: validated([8, 1.5], [4, 1.5]) }).step).toBe(4);
  });

  it('stops at a validation loss that is not finite, wherever it is', () => {
    for (const loss of [null, Number.NaN, Number.POSITIVE_INFINITY])
      expect(() => chooseCheckpoint({ saved: [4, 8], validations: validated([4, 1], [8, loss]) })).toThrowError(
        expect.objectContaining({ code: 'gate', details: { step: 8 } }),
      );
  });

  it('says so when no step qualifies', () => {
    expect(() => chooseCheckpoint({ saved: [50], validations: validated([0, 1], [150, 1]) })).toThrowError(
      expect.objectContaining({ code: 'usage', details: { saved: [50], validated: [0, 150] } }),
    );
  });

  it('is a lowest one, saved and after step 0, for any training', () => {
    const validation = fc.record({ step: fc.nat(20), loss: fc.double({ min: 0, max: 9, noNaN: true }) });
    fc.assert(
      fc.property(
        fc.uniqueArray(validation, { selector: ({ step }) => step, minLength: 1 }),
        fc.uniqueArray(fc.nat(20)),
        (validations, saved) => {
          const able = validations.filter(({ step }) => step > 0 && saved.includes(step));
          fc.pre(able.length > 0);
          const { step, loss } = chooseCheckpoint({ saved, validations });
          expect(able).toContainEqual({ step, loss });
          expect(loss).toBe(Math.min(...able.map((one) => one.loss)));
        },
      ),
    );
  });

  it("is a person's, validated or not, when it was saved", () => {
    const steps = { saved: [4, 6, 8], validations: validated([4, 1], [8, null]) };
    expect(choiceOfPerson(steps, 4)).toEqual({ step: 4, loss: 1, by: 'person' });
    expect(choiceOfPerson(steps, 6)).toEqual({ step: 6, loss: null, by: 'person' });
    expect(() => choiceOfPerson(steps, 5)).toThrow('4, 6, 8');
    expect(() => choiceOfPerson({ ...steps, saved: [0] }, 0)).toThrow('none');
  });
});
