import { statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freeBytes, requireFreeBytes } from './free-disk.ts';

const wanted = join(tmpdir(), 'not-there', 'nor-this');

it('measures the disk that a path will lie on', async () => {
  const { bsize, blocks } = statfsSync(tmpdir());
  const free = await freeBytes(wanted);
  expect(free).toBeGreaterThan(0);
  expect(free).toBeLessThanOrEqual(bsize * blocks);
});

it('refuses with what is needed, what is there and what to free', async () => {
  await requireFreeBytes(wanted, 1, 'A byte');
  await expect(requireFreeBytes(wanted, 1e18, 'A large thing')).rejects.toMatchObject({
    code: 'prerequisite',
    message: expect.stringMatching(
      /^A large thing needs 1000000000\.0 GB on the disk of .*; free .* GB, then run again\.$/,
    ),
  });
});
