import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ensureLlamaSources } from './llama-sources.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-llama-'));
});
afterEach(() => rmSync(root, { recursive: true }));

it('takes out the scripts once, also for two who ask at the same time, and leaves nothing else', async () => {
  const [folder, same] = await Promise.all([ensureLlamaSources({ root }), ensureLlamaSources({ root })]);
  expect(same).toBe(folder);
  expect(readdirSync(join(root, 'llama.cpp'))).toHaveLength(1);
  expect(readdirSync(folder).sort()).toEqual(
    ['LICENSE', 'conversion', 'convert_hf_to_gguf.py', 'convert_lora_to_gguf.py', 'gguf-py'].sort(),
  );
  expect(readFileSync(join(folder, 'convert_lora_to_gguf.py'), 'utf8')).toContain('lora');
  const made = statSync(folder).ino;
  expect(await ensureLlamaSources({ root, git: '/nowhere/git' })).toBe(folder);
  expect(statSync(folder).ino).toBe(made);
});

it('names git when it is missing, and leaves nothing half-made', async () => {
  await expect(ensureLlamaSources({ root, git: join(root, 'no-git') })).rejects.toMatchObject({
    code: 'prerequisite',
    message: expect.stringContaining('needs git'),
  });
  const failing = join(root, 'git.sh');
  writeFileSync(failing, '#!/bin/sh\necho no space left >&2\nexit 128\n', { mode: 0o755 });
  await expect(ensureLlamaSources({ root, git: failing })).rejects.toThrow(/install the packages again/);
  expect(readdirSync(join(root, 'llama.cpp'))).toEqual([]);
});

it('is not led astray by the variables of a git hook', async () => {
  process.env['GIT_DIR'] = join(root, 'elsewhere');
  try {
    expect(readdirSync(await ensureLlamaSources({ root }))).toContain('conversion');
  } finally {
    delete process.env['GIT_DIR'];
  }
});

it('stops when it is cancelled', async () => {
  await expect(ensureLlamaSources({ root, signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'cancelled' });
});
