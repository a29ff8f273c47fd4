import { describe, expect, it } from 'vitest';
import { createSlots } from './slots.ts';

const gate = () => {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
};

describe('slots', () => {
  it('runs at most the given number at once, in order of asking', async () => {
    const slot = createSlots(2, new AbortController().signal);
    const started: number[] = [];
    const gates = [gate(), gate(), gate()];
    const all = gates.map((g, i) =>
      slot(async () => {
        started.push(i);
        await g.opened;
      }),
    );
    await new Promise((resolve) => setImmediate(resolve));
    expect(started).toEqual([0, 1]);
    gates[1]?.open();
    await all[1];
    await new Promise((resolve) => setImmediate(resolve));
    expect(started).toEqual([0, 1, 2]);
    for (const g of gates) g.open();
    await Promise.all(all);
  });

  it('rejects waiters when aborted and keeps the place of running work', async () => {
    const abort = new AbortController();
    const slot = createSlots(1, abort.signal);
    const g = gate();
    const running = slot(() => g.opened.then(() => 'done'));
    const waiter = slot(async () => 'never');
    abort.abort();
    await expect(waiter).rejects.toMatchObject({ code: 'cancelled' });
    g.open();
    await expect(running).resolves.toBe('done');
    await expect(slot(async () => 1)).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('frees the place of failed work', async () => {
    const slot = createSlots(1, new AbortController().signal);
    await expect(slot(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    await expect(slot(async () => 2)).resolves.toBe(2);
  });
});
