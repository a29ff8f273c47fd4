import { describe, expect, it } from 'vitest';
import { ModelCatalogue, ModelEntry, parseModelSource, plannedBytes } from './model-catalogue.ts';

const entry = (over: Record<string, unknown> = {}) => ({
  id: 'a',
  title: 'A',
  file: 'A.gguf',
  architecture: 'llama',
  quantisation: 'Q4_1',
  parameters: 1e8,
  contextLength: 2048,
  licence: 'Apache-2.0',
  approximateBytes: 10,
  sources: ['hf:o/r/A.gguf'],
  ...over,
});

describe('parseModelSource', () => {
  it('reads both forms', () => {
    expect(parseModelSource('hf:own.er/re-po/sub/f.gguf')).toEqual({
      kind: 'hf',
      repository: 'own.er/re-po',
      file: 'sub/f.gguf',
      revision: 'main',
    });
    expect(parseModelSource('hf:o/r/f.gguf#abc123')).toMatchObject({ revision: 'abc123' });
    expect(parseModelSource('pypi:some-package==0.1.2/some_package/f.gguf')).toEqual({
      kind: 'pypi',
      package: 'some-package',
      version: '0.1.2',
      member: 'some_package/f.gguf',
    });
  });

  it.each([
    '',
    'hf:o/r',
    'hf:o/../f.gguf',
    'hf:o/r/../../f',
    'hf:o/r/f?x',
    'pypi:p/f',
    'pypi:-r==1/f',
    'pypi:p==1/../f',
    'https://x/y',
  ])('refuses %j', (uri) => expect(() => parseModelSource(uri)).toThrow(/is not a model source; write hf:/));
});

describe('ModelEntry', () => {
  it('wants one of exact and approximate size, and a hash only with the exact one', () => {
    expect(plannedBytes(ModelEntry.parse(entry()))).toBe(10);
    expect(ModelEntry.safeParse(entry({ bytes: 9 })).success).toBe(false);
    expect(ModelEntry.safeParse(entry({ approximateBytes: undefined })).success).toBe(false);
    expect(ModelEntry.safeParse(entry({ sha256: 'a'.repeat(64) })).success).toBe(false);
    expect(ModelEntry.safeParse(entry({ approximateBytes: undefined, bytes: 9, sha256: 'a'.repeat(64) })).success).toBe(
      true,
    );
  });

  it('keeps files inside the models folder', () => {
    for (const file of ['../A.gguf', 'a/b.gguf', '.hidden.gguf', 'A.bin'])
      expect(ModelEntry.safeParse(entry({ file })).success).toBe(false);
  });
});

it('ModelCatalogue refuses repeated ids and files and an unknown demo model', () => {
  const valid = { demo: 'a', models: [entry(), entry({ id: 'b', file: 'B.gguf' })] };
  expect(ModelCatalogue.safeParse(valid).success).toBe(true);
  expect(ModelCatalogue.safeParse({ ...valid, models: [entry(), entry({ file: 'B.gguf' })] }).success).toBe(false);
  expect(ModelCatalogue.safeParse({ ...valid, models: [entry(), entry({ id: 'b' })] }).success).toBe(false);
  expect(ModelCatalogue.safeParse({ ...valid, demo: 'c' }).success).toBe(false);
});
