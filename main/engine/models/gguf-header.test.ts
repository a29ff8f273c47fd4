import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MassError } from '../../common/base/errors.ts';
import { AbsurdValue, NeedMoreBytes } from './gguf-cursor.ts';
import { buildGguf, smallModel } from './gguf-fixture.ts';
import { parseGgufHeader, readGgufHeader } from './gguf-header.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-gguf-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const whole = buildGguf(smallModel);
const readBytes = (bytes: Uint8Array) => {
  const path = join(folder, 'x.gguf');
  writeFileSync(path, bytes);
  return readGgufHeader(path);
};

describe('readGgufHeader', () => {
  it('reports what the file says of itself', async () => {
    const header = await readBytes(whole);
    expect(header).toMatchObject({
      version: 3,
      architecture: 'llama',
      name: 'Tiny',
      contextLength: 2048,
      tokenizerModel: 'gpt2',
      chatTemplate: '{{ messages }}',
      tensorCount: 2,
      quantisation: 'F32',
      parameterCount: 16,
      splitCount: 1,
    });
    expect(header.metadata.get('tokenizer.ggml.tokens')).toEqual({ length: 3, items: ['a', 'b', 'c'] });
    // Two tensors of 48 and 16 bytes; the first is padded to 64, the last one needs no padding.
    expect(header.completeBytes).toBe(Math.ceil(header.headerBytes / 32) * 32 + 64 + 16);
  });

  it('reads a header longer than its first read, and keeps only the length of a vocabulary', async () => {
    const tokens = Array.from({ length: 90_000 }, (_, i) => `token number ${i}`);
    const metadata = [...smallModel.metadata!, ['tokens', tokens], ['last', 7]] as const;
    const bytes = buildGguf({ ...smallModel, metadata });
    expect(bytes.length).toBeGreaterThan(1 << 20);
    const header = await readBytes(bytes);
    expect(header.metadata.get('tokens')).toEqual({ length: 90_000, items: null });
    expect(header.metadata.get('last')).toBe(7);
  });

  it('names the main tensor type when the file has no file_type, and leaves out what is unknown', async () => {
    const header = await readBytes(buildGguf({ metadata: [['general.architecture', 'x']], tensors: [['t', [2, 2]]] }));
    expect(header).toMatchObject({
      quantisation: 'F32',
      contextLength: null,
      tokenizerModel: null,
      chatTemplate: null,
      name: '',
    });
  });

  it('accepts version 2 and refuses others, wrong magic and other kinds of file', async () => {
    expect((await readBytes(buildGguf({ ...smallModel, version: 2 }))).version).toBe(2);
    const problem = (bytes: Uint8Array) => readBytes(bytes).catch((e: MassError) => [e.code, e.details?.problem]);
    expect(await problem(buildGguf({ ...smallModel, version: 1 }))).toEqual(['invalid_input', 'unsupported']);
    expect(await problem(Buffer.from('PK\x03\x04 some archive with enough bytes'))).toEqual([
      'invalid_input',
      'not_gguf',
    ]);
    expect(await problem(buildGguf({}))).toEqual(['invalid_input', 'not_gguf']);
    expect(await readGgufHeader(folder).catch((e: MassError) => e.details?.problem)).toBe('not_gguf');
  });

  it('tells a missing file, one cut in its header and one cut in its tensors apart', async () => {
    await expect(readGgufHeader(join(folder, 'none.gguf'))).rejects.toMatchObject({
      code: 'not_found',
      details: { problem: 'missing' },
    });
    await expect(readBytes(Buffer.alloc(0))).rejects.toMatchObject({ details: { problem: 'truncated' } });
    await expect(readBytes(whole.subarray(0, 120))).rejects.toMatchObject({
      message: /ends inside its header, after 120 bytes; fetch/,
    });
    await expect(readBytes(whole.subarray(0, whole.length - 40))).rejects.toMatchObject({
      message: /has \d+ of at least \d+ bytes; fetch or copy/,
    });
  });

  it('refuses absurd counts before allocating for them', async () => {
    for (const at of [8, 16, 24]) {
      const bytes = Buffer.from(whole);
      bytes.writeBigUInt64LE(2n ** 60n, at);
      await expect(readBytes(bytes)).rejects.toMatchObject({ code: 'invalid_input', details: { problem: 'absurd' } });
      bytes.writeBigUInt64LE(2n ** 40n, at);
      await expect(readBytes(bytes)).rejects.toMatchObject({ code: 'invalid_input', details: { problem: 'absurd' } });
    }
  });
});

describe('fuzz', () => {
  const known = (error: unknown): boolean =>
    error instanceof NeedMoreBytes || error instanceof AbsurdValue || (error instanceof Error && 'problem' in error);
  const headerOnly = whole.subarray(0, whole.length - 128);

  it('never fails in another way than its own errors, whatever bytes are changed', () => {
    const change = fc.record({
      at: fc.nat(headerOnly.length - 8),
      bytes: fc.uint8Array({ minLength: 1, maxLength: 8 }),
    });
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 6 }), fc.nat(1 << 20), (changes, extra) => {
        const bytes = Buffer.from(headerOnly);
        for (const { at, bytes: replacement } of changes) bytes.set(replacement, at);
        try {
          const header = parseGgufHeader(bytes, bytes.length + extra);
          expect(header.headerBytes).toBeLessThanOrEqual(bytes.length);
          expect(header.metadata.size).toBeLessThanOrEqual(bytes.length / 14);
        } catch (error) {
          if (!known(error)) throw error;
        }
      }),
      { numRuns: 3000 },
    );
  });

  it('asks for more bytes at every cut of a sound header', () => {
    const { headerBytes } = parseGgufHeader(whole, whole.length);
    for (let size = 0; size < headerBytes; size++)
      expect(() => parseGgufHeader(whole.subarray(0, size), whole.length)).toThrow(NeedMoreBytes);
  });

  it('reports arbitrary files as MassError', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), fc.boolean(), async (tail, real) => {
        const bytes = real ? Buffer.concat([Buffer.from('GGUF\x03\0\0\0'), tail]) : tail;
        const outcome = await readBytes(bytes).catch((error: unknown) => error);
        if (outcome instanceof Error) expect(outcome).toBeInstanceOf(MassError);
      }),
      { numRuns: 300 },
    );
  });
});
