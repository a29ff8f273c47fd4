import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { compareScores, type ScoreFile } from './score-comparison.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-scores-'));
});
afterEach(() => rmSync(root, { recursive: true }));

const never = new AbortController().signal;
const prompts = [
  { window: 3, ids: [1, 2, 3] },
  { window: 7, ids: [1, 2] },
];

/** Rows of probabilities, two positions for each of two prompts. */
function file(name: string, rows: readonly (readonly number[])[]): ScoreFile {
  const path = join(root, name);
  writeFileSync(path, new Uint8Array(Float32Array.from(rows.flat().map(Math.log)).buffer));
  return { path, vocabulary: rows[0]?.length ?? 0 };
}

const even = [0.25, 0.5, 0.25];
const bent = [0.5, 0.25, 0.25];

it('reads the four files and reports parity, each prompt and the likeliest ids', async () => {
  const files = {
    trainerBase: file('a', [even, even, even, even]),
    trainerAdapted: file('b', [bent, even, bent, even]),
    servedBase: file('c', [even, even, even, even]),
    servedAdapted: file('d', [bent, even, bent, bent]),
  };
  const report = await compareScores({ files, prompts, lastPositions: 2 }, never);
  expect(report.vocabulary).toBe(3);
  expect(report.prompts.map(({ window, tokens }) => [window, tokens])).toEqual([
    [3, 3],
    [7, 2],
  ]);
  expect(report.prompts[0]?.klAdapted).toBe(0);
  // One of its two positions: 0.25 ln(0.25 / 0.5) + 0.5 ln(0.5 / 0.25) = 0.25 ln 2.
  expect(report.prompts[1]?.klAdapted).toBeCloseTo((0.25 * Math.log(2)) / 2, 6);
  expect(report.sameTop).toEqual({ base: 1, adapted: 0.75, trainerBaseAndAdapted: 0.5 });
  expect(report.parity).toMatchObject({ positions: 4, klBase: 0, passed: false });
});

it('passes on what the comparison refuses, and ends when it is cancelled', async () => {
  const good = file('a', [even, even, even, even]);
  const files = { trainerBase: good, trainerAdapted: good, servedBase: good, servedAdapted: file('b', [[0.5, 0.5]]) };
  await expect(compareScores({ files, prompts, lastPositions: 2 }, never)).rejects.toMatchObject({
    code: 'invalid_input',
  });
  const stop = new AbortController();
  const comparing = compareScores({ files, prompts, lastPositions: 2 }, stop.signal);
  stop.abort();
  await expect(comparing).rejects.toMatchObject({ code: 'cancelled' });
});
