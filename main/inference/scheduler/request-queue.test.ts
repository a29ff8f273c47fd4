import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RequestQueue } from './request-queue.ts';

const entry = (name: string, priority = 0) => ({ name, priority });

describe('RequestQueue', () => {
  it('is first in, first out within a priority, lower priorities first', () => {
    const queue = new RequestQueue<ReturnType<typeof entry>>();
    for (const request of [entry('a', 1), entry('b', 0), entry('c', 1), entry('d', 0)]) queue.push(request);
    expect(['', '', '', ''].map(() => queue.take()?.name)).toEqual(['b', 'd', 'a', 'c']);
    expect(queue.take()).toBeUndefined();
  });

  it('lets a request with a gain overtake its equals, the same head at most four times', () => {
    const queue = new RequestQueue<ReturnType<typeof entry>>();
    queue.push(entry('cold'));
    for (let i = 0; i < 6; i++) queue.push(entry(`warm ${i}`));
    const gain = ({ name }: { name: string }): number => (name.startsWith('warm') ? 100 : 0);
    const order = Array.from({ length: 7 }, () => queue.take(gain)?.name);
    expect(order).toEqual(['warm 0', 'warm 1', 'warm 2', 'warm 3', 'cold', 'warm 4', 'warm 5']);
  });

  it('never lets a gain pass a more urgent priority', () => {
    const queue = new RequestQueue<ReturnType<typeof entry>>();
    queue.push(entry('urgent', 0));
    queue.push(entry('warm', 1));
    expect(queue.take(({ name }) => (name === 'warm' ? 1000 : 0))?.name).toBe('urgent');
  });

  it('starves nobody: whatever the gains, a request waits for at most four overtakers', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(50), { minLength: 1, maxLength: 30 }), (gains) => {
        const queue = new RequestQueue<{ priority: number; at: number }>();
        for (const at of gains.keys()) queue.push({ priority: 0, at });
        const order: number[] = [];
        for (let next = queue.take(({ at }) => gains[at]!); next; next = queue.take(({ at }) => gains[at]!))
          order.push(next.at);
        expect([...order].sort((a, b) => a - b)).toEqual(gains.map((_, at) => at));
        for (const at of order) {
          const before = order.slice(0, order.indexOf(at));
          expect(before.filter((other) => other > at).length).toBeLessThanOrEqual(4);
        }
      }),
    );
  });

  it('removes a waiting request once', () => {
    const queue = new RequestQueue<ReturnType<typeof entry>>();
    const request = entry('a');
    queue.push(request);
    expect([queue.remove(request), queue.remove(request), queue.length]).toEqual([true, false, 0]);
  });
});
