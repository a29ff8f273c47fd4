import fc from 'fast-check';
import type { BatchItem } from 'node-llama-cpp';
import { describe, expect, it } from 'vitest';
import { fillShares, fullBatchStrategy } from './full-batch.ts';

const item = (tokens: number, sequence = 0): BatchItem =>
  ({ tokens: new Array(tokens).fill(1), logits: [], evaluationPriority: sequence }) as unknown as BatchItem;

describe('fullBatchStrategy', () => {
  it('waits until every expected sequence has queued, then batches them together', () => {
    let expected = 3;
    const sizes: number[] = [];
    const strategy = fullBatchStrategy({ expected: () => expected, onBatch: (n) => sizes.push(n) });
    expect(strategy({ items: [item(1), item(1)], size: 512 })).toEqual([]);
    expect(strategy({ items: [item(1), item(1), item(1)], size: 512 })).toHaveLength(3);
    expected = 1;
    expect(strategy({ items: [item(1)], size: 512 })).toHaveLength(1);
    expect(sizes).toEqual([3, 1]);
  });

  it('does not wait for ever for a sequence that never queues', () => {
    const strategy = fullBatchStrategy({ expected: () => 2, onBatch: () => undefined });
    let rounds = 0;
    while (strategy({ items: [item(1)], size: 512 }).length === 0) rounds++;
    expect(rounds).toBe(64);
  });

  it('gives decoding sequences their token and prefill the rest', () => {
    const strategy = fullBatchStrategy({ expected: () => 3, onBatch: () => undefined });
    const items = [item(256), item(1), item(400)];
    const batch = strategy({ items, size: 512 });
    expect(batch.map(({ processAmount }) => processAmount)).toEqual([255, 1, 256]);
    expect(batch.map(({ item: taken }) => items.indexOf(taken as BatchItem))).toEqual([0, 1, 2]);
  });
});

describe('order of a batch', () => {
  it('is that of the sequence ids, whatever the order of arrival', () => {
    const strategy = fullBatchStrategy({ expected: () => 4, onBatch: () => undefined });
    const items = [item(1, 3), item(1, 0), item(90, 2), item(1, 1)];
    const batch = strategy({ items, size: 512 });
    expect(batch.map(({ item: taken }) => taken.evaluationPriority)).toEqual([0, 1, 2, 3]);
    expect(batch.map(({ processAmount }) => processAmount)).toEqual([1, 1, 90, 1]);
  });
});

describe('fillShares', () => {
  it('never exceeds the size or a demand, wastes nothing, and starves nobody while there is room', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 600 }), { maxLength: 20 }),
        fc.integer({ min: 0, max: 600 }),
        (demands, size) => {
          const shares = fillShares(demands, size);
          const total = shares.reduce((sum, share) => sum + share, 0);
          const asked = demands.reduce((sum, demand) => sum + demand, 0);
          expect(total).toBe(Math.min(size, asked));
          for (const [i, share] of shares.entries()) {
            expect(share).toBeLessThanOrEqual(demands[i]!);
            if (size >= demands.length)
              expect(share).toBeGreaterThanOrEqual(Math.min(demands[i]!, Math.floor(size / demands.length)));
          }
        },
      ),
    );
  });
});
