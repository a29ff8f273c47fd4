import { afterEach, beforeEach, expect, it } from 'vitest';
import { StallWatch } from './stall-watch.ts';

let clock: number;
let stalls: number;
let watch: StallWatch;
beforeEach(() => {
  clock = 0;
  stalls = 0;
  watch = new StallWatch({ stallMs: 60_000, onStall: () => stalls++, now: () => clock });
});
afterEach(() => watch.stop());

const after = (seconds: number, pulse?: { running: number; work: number }): number => {
  clock += seconds * 1000;
  if (pulse) watch.pulse(pulse);
  watch.check();
  return stalls;
};

it('leaves a process alone that works, however slowly, or has nothing to do', () => {
  for (let work = 0; work < 5; work++) expect(after(59, { running: 2, work })).toBe(0);
  for (let i = 0; i < 5; i++) expect(after(59, { running: 0, work: 4 })).toBe(0);
});

it('reports one that has work and does not get on, once', () => {
  after(1, { running: 1, work: 7 });
  expect(after(59, { running: 1, work: 7 })).toBe(0);
  expect(after(1, { running: 1, work: 7 })).toBe(1);
  expect(after(100, { running: 1, work: 7 })).toBe(1);
});

it('reports one that gives no sign at all', () => {
  after(1, { running: 0, work: 0 });
  expect(after(59)).toBe(0);
  expect(after(1)).toBe(1);
});

it('says nothing once stopped', () => {
  watch.stop();
  expect(after(1000)).toBe(0);
});
