import { describe, expect, it } from 'vitest';
import { checkpointPositions, checkpointRoom } from './checkpoints.ts';

const END = 9;
const prompt = (length: number, ends: readonly number[]): number[] =>
  Array.from({ length }, (_, i) => (ends.includes(i) ? END : 1));
const positions = (promptIds: number[], forkPoints: number[] = []): [number, string][] => [
  ...checkpointPositions({ promptIds, forkPoints, endIds: new Set([END]) }),
];

describe('checkpointPositions', () => {
  it('keeps fork points and the end of the last turn, not the generation prompt after it', () => {
    // The last turn ends with id 94; five ids of generation prompt follow.
    expect(positions(prompt(100, [30, 94]), [31])).toEqual([
      [31, 'fork'],
      [95, 'turn'],
    ]);
  });

  it('keeps the prompt without its last id when its last turn ended far before', () => {
    expect(positions(prompt(100, [30]))).toEqual([[99, 'turn']]);
    expect(positions(prompt(100, []))).toEqual([[99, 'turn']]);
  });

  it('treats a fork at the turn end as a fork, and drops what lies outside', () => {
    expect(positions(prompt(100, [94]), [95, 0, 100, 400])).toEqual([[95, 'fork']]);
    expect(positions([1])).toEqual([]);
  });
});

describe('checkpointRoom', () => {
  it('halves what fits between forks and turns', () => {
    expect(checkpointRoom({ perSequence: 8, bytes: 1200 }, 150)).toEqual({ fork: 4, turn: 4 });
    expect(checkpointRoom({ perSequence: 8, bytes: 500 }, 150)).toEqual({ fork: 2, turn: 1 });
    expect(checkpointRoom({ perSequence: 8, bytes: 100 }, 150)).toEqual({ fork: 0, turn: 0 });
  });
});
