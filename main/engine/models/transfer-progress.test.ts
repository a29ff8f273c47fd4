import { expect, it } from 'vitest';
import { ProgressMeter, type TransferProgress } from './transfer-progress.ts';

it('reports rate and time left, at most every 250 ms, and leaves kept bytes out of the rate', () => {
  let now = 0;
  const seen: TransferProgress[] = [];
  const meter = new ProgressMeter((progress) => seen.push(progress), { now: () => now });
  meter.begin('download', 1000, 5000);
  expect(seen.at(-1)).toEqual({ phase: 'download', bytes: 1000, total: 5000, bytesPerSecond: 0, etaSeconds: null });
  now = 100;
  meter.add(100);
  expect(seen).toHaveLength(1);
  now = 500;
  meter.add(900);
  expect(seen.at(-1)).toEqual({ phase: 'download', bytes: 2000, total: 5000, bytesPerSecond: 2000, etaSeconds: 1.5 });
  now = 1000;
  meter.at(5000);
  expect(seen.at(-1)).toMatchObject({ bytes: 5000, etaSeconds: 0 });
});

it('gives no time left while the size is unknown', () => {
  let now = 0;
  const seen: TransferProgress[] = [];
  const meter = new ProgressMeter((progress) => seen.push(progress), { now: () => now });
  meter.begin('download', 0, null);
  now = 1000;
  meter.add(10);
  expect(seen.at(-1)).toEqual({ phase: 'download', bytes: 10, total: null, bytesPerSecond: 10, etaSeconds: null });
});
