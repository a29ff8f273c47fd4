import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { judgeOrderPlan, presentationsOf, resolveOrders } from './orders.ts';
import { personaOf } from './persona.ts';
import type { Side } from './verdict.ts';

const both = (one: Side, two: Side) =>
  resolveOrders([
    { shownAsA: 'first', verdict: one, valid: true },
    { shownAsA: 'second', verdict: two, valid: true },
  ]);

describe('resolveOrders', () => {
  // Shown first/second, then second/first: A then B is the first twice.
  it.each([
    ['A', 'A', 'tie', true, 2],
    ['A', 'B', 'first', false, 1],
    ['A', 'tie', 'tie', false, 1],
    ['B', 'A', 'second', false, 1],
    ['B', 'B', 'tie', true, 0],
    ['B', 'tie', 'tie', false, 0],
    ['tie', 'A', 'tie', false, 1],
    ['tie', 'B', 'tie', false, 0],
    ['tie', 'tie', 'tie', false, 0],
  ] as const)('%s then %s is %s', (one, two, result, flipped, firstSlotWins) => {
    const agreed = result !== 'tie' || (one === 'tie' && two === 'tie');
    expect(both(one, two)).toMatchObject({ result, flipped, firstSlotWins, agreed, invalid: 0 });
  });

  it.each([
    ['first', 'A', 'first'],
    ['first', 'B', 'second'],
    ['second', 'A', 'second'],
    ['second', 'B', 'first'],
    ['second', 'tie', 'tie'],
  ] as const)('one presentation with the %s as A and verdict %s: %s', (shownAsA, verdict, result) => {
    expect(resolveOrders([{ shownAsA, verdict, valid: true }])).toMatchObject({ result, agreed: true, flipped: false });
  });

  it('counts an invalid verdict as a tie, whatever it says', () => {
    const one = { shownAsA: 'first', verdict: 'A', valid: true } as const;
    const broken = { shownAsA: 'second', verdict: 'B', valid: false } as const;
    expect(resolveOrders([one, broken])).toEqual({
      result: 'tie',
      agreed: false,
      flipped: false,
      firstSlotWins: 1,
      decided: 1,
      invalid: 1,
    });
  });

  it('does not depend on which presentation came first', () => {
    const presentation = fc.record({ verdict: fc.constantFrom<Side>('A', 'B', 'tie'), valid: fc.boolean() });
    fc.assert(
      fc.property(presentation, presentation, (a, b) => {
        const pair = [
          { shownAsA: 'first' as const, ...a },
          { shownAsA: 'second' as const, ...b },
        ];
        expect(resolveOrders([...pair].reverse())).toEqual(resolveOrders(pair));
      }),
    );
  });

  it('refuses none, three, or the same order twice', () => {
    const one = { shownAsA: 'first', verdict: 'A', valid: true } as const;
    for (const wrong of [[], [one, one], [one, { ...one, shownAsA: 'second' as const }, one]])
      expect(() => resolveOrders(wrong)).toThrow(/one presentation, or two/);
  });
});

describe('judgeOrderPlan', () => {
  const matches = [
    { first: 'a', second: 'b' },
    { first: 'c', second: 'a' },
    { first: 'b', second: 'c' },
  ];

  it('shows the incumbent as A when there is one order', () => {
    expect(presentationsOf(1, 'second')).toEqual(['second']);
    const plan = judgeOrderPlan(matches.slice(0, 1), { orders: 1, single: 'second' });
    expect(plan).toEqual([{ match: matches[0], shownAsA: 'second' }]);
  });

  it('puts presentations with the same first submission together', () => {
    const plan = judgeOrderPlan(matches, { orders: 2 });
    expect(plan.map(({ match, shownAsA }) => match[shownAsA])).toEqual(['a', 'a', 'b', 'b', 'c', 'c']);
  });

  it('executes every presentation exactly once and changes the first submission as rarely as possible', () => {
    const match = fc.record({
      first: fc.constantFrom('a', 'b', 'c', 'd'),
      second: fc.constantFrom('e', 'f', 'a', 'b'),
    });
    fc.assert(
      fc.property(fc.array(match, { maxLength: 20 }), (some) => {
        const plan = judgeOrderPlan(some, { orders: 2 });
        expect(plan).toHaveLength(some.length * 2);
        for (const one of some)
          expect(
            plan
              .filter((planned) => planned.match === one)
              .map(({ shownAsA }) => shownAsA)
              .sort(),
          ).toEqual(['first', 'second']);
        const shown = plan.map((planned) => planned.match[planned.shownAsA]);
        const changes = shown.filter((id, index) => index > 0 && id !== shown[index - 1]).length;
        expect(changes).toBe(Math.max(0, new Set(shown).size - 1));
      }),
    );
  });
});

describe('personaOf', () => {
  it.each([
    [1, 'neutral', 'finance'],
    [99, 'neutral', 'finance'],
    [100, 'neutral', 'neutral'],
    [200, 'neutral', 'pharmacy'],
    [299, 'neutral', 'pharmacy'],
    [300, 'neutral', 'robotics'],
    [399, 'neutral', 'robotics'],
    [0, 'neutral', 'neutral'],
    [400, 'neutral', 'neutral'],
    [1000, 'robotics', 'robotics'],
  ] as const)('task %i, domain %s: %s', (number, domain, persona) => {
    expect(personaOf({ number, domain })).toBe(persona);
  });
});
