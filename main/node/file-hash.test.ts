import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { hashInto, sha256File } from './file-hash.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-hash-'));
  writeFileSync(join(folder, 'abc'), 'abc');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('gives the published sha256 of "abc" (FIPS 180-2)', async () => {
  let seen = 0;
  const digest = await sha256File(join(folder, 'abc'), { onBytes: (count) => (seen += count) });
  expect(digest).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  expect(seen).toBe(3);
});

it('hashes only the asked prefix, and nothing for an empty one', async () => {
  const prefix = createHash('sha256');
  await hashInto(prefix, join(folder, 'abc'), { end: 2 });
  expect(prefix.digest('hex')).toBe(createHash('sha256').update('ab').digest('hex'));
  const none = createHash('sha256');
  await hashInto(none, join(folder, 'abc'), { end: 0 });
  expect(none.digest('hex')).toBe(createHash('sha256').digest('hex'));
});

it('stops when aborted', async () => {
  await expect(sha256File(join(folder, 'abc'), { signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
});
