import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { buildGguf, smallModel } from './gguf-fixture.ts';
import { importGguf } from './import-gguf.ts';

let root: string;
let own: string;
let modelsFolder: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-import-'));
  own = join(root, 'own.gguf');
  modelsFolder = join(root, 'models');
  writeFileSync(own, buildGguf(smallModel));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

it.each([true, false])('brings a file in (link: %s), and twice is once', async (link) => {
  for (let i = 0; i < 2; i++) {
    const model = await importGguf(own, { modelsFolder, link });
    if (!link && i === 0) rmSync(join(modelsFolder, 'own.gguf')); // a copy is another file: see the next test
    expect(model).toMatchObject({ path: join(modelsFolder, 'own.gguf'), bytes: buildGguf(smallModel).length });
    expect(model.header.architecture).toBe('llama');
  }
  expect(lstatSync(join(modelsFolder, 'own.gguf')).isSymbolicLink()).toBe(link);
  expect(readFileSync(join(modelsFolder, 'own.gguf')).equals(readFileSync(own))).toBe(true);
});

it('never replaces another file of the name', async () => {
  mkdirSync(modelsFolder);
  writeFileSync(join(modelsFolder, 'own.gguf'), 'other');
  await expect(importGguf(own, { modelsFolder, link: false })).rejects.toMatchObject({
    code: 'conflict',
    message: /exists already; rename/,
  });
  expect(readFileSync(join(modelsFolder, 'own.gguf'), 'utf8')).toBe('other');
});

it('refuses what is no whole model, leaving nothing behind', async () => {
  await expect(importGguf(join(root, 'none.gguf'), { modelsFolder, link: true })).rejects.toMatchObject({
    code: 'not_found',
  });
  writeFileSync(own, buildGguf({ ...smallModel, metadata: [...smallModel.metadata!, ['split.count', 3]] }));
  await expect(importGguf(own, { modelsFolder, link: true })).rejects.toMatchObject({
    message: /one of 3 parts .* llama-gguf-split --merge/,
  });
  writeFileSync(own, 'text');
  await expect(importGguf(own, { modelsFolder, link: true })).rejects.toMatchObject({ code: 'invalid_input' });
  expect(readdirSync(root)).toEqual(['own.gguf']);
});

it('names the way out when the folder cannot be written', async () => {
  writeFileSync(join(root, 'file'), '');
  await expect(importGguf(own, { modelsFolder: join(root, 'file'), link: false })).rejects.toMatchObject({
    code: 'prerequisite',
  });
});
