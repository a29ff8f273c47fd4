import { copyFile, mkdtemp, open, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getLlama, type Llama, LlamaLogLevel } from 'node-llama-cpp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import type { LoadOrder } from '../../common/protocol/inference.ts';
import { smolLm2Model } from '../testing/smollm2.ts';
import { tinyHybridModel } from '../testing/tiny-hybrid.ts';
import { loadServedModel, planServedModel } from './load.ts';
import { BATCH_TOKENS, computeBytes, kvBytes } from './memory-plan.ts';
import { readModelFile } from './model-file.ts';

const options = { logger: silentLogger };
let folder: string;
let tiny: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mass-load-'));
  tiny = await tinyHybridModel();
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const order = (path: string, model: Partial<LoadOrder['model']> = {}): LoadOrder => ({
  model: { id: 'm', contextSize: 1024, sequences: 1, gpu: 'off', kvType: 'f16', ...model },
  path,
  sha256: '0'.repeat(64),
  adapter: null,
});

async function variant(name: string, change: (path: string) => Promise<void>): Promise<string> {
  const path = join(folder, name);
  await copyFile(tiny, path);
  await change(path);
  return path;
}

describe('a model that cannot be served is refused in one sentence', () => {
  const refused = (path: string, model?: Partial<LoadOrder['model']>) =>
    loadServedModel(order(path, model), options).then(
      () => expect.unreachable('it loaded'),
      (error: unknown) => error,
    );

  it('missing', async () => {
    expect(await refused(join(folder, 'absent.gguf'))).toMatchObject({ code: 'not_found' });
  });

  it('a folder', async () => {
    expect(await refused(folder)).toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('not a file'),
    });
  });

  it('not a GGUF, and empty', async () => {
    const text = join(folder, 'text.gguf');
    await writeFile(text, 'hello, this is no model');
    expect(await refused(text)).toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('not a GGUF'),
    });
    await writeFile(text, '');
    expect(await refused(text)).toMatchObject({ code: 'invalid_input' });
  });

  it('cut short in its header, at its first and in its last tensor', async () => {
    for (const bytes of [5000, 12_000, 3_000_000]) {
      const path = await variant(`cut-${bytes}.gguf`, (copy) => truncate(copy, bytes));
      expect(await refused(path)).toMatchObject({ code: 'invalid_input', message: expect.stringContaining('again') });
    }
  });

  it('of an unknown architecture', async () => {
    const path = await variant('unknown.gguf', async (copy) => {
      const bytes = await readFile(copy);
      await writeFile(copy, bytes.toString('latin1').replaceAll('qwen35', 'qwen99'), 'latin1');
    });
    expect(await refused(path)).toMatchObject({ code: 'invalid_input', message: expect.stringContaining('"qwen99"') });
  });

  it('with damaged metadata', async () => {
    const path = await variant('damaged.gguf', async (copy) => {
      const file = await open(copy, 'r+');
      await file.write(Buffer.alloc(64, 0xff), 0, 64, 24);
      await file.close();
    });
    expect(await refused(path)).toMatchObject({ code: 'invalid_input' });
  });

  it('asked for more context than it was trained for', async () => {
    expect(await refused(tiny, { contextSize: 65_536 })).toMatchObject({
      code: 'invalid_input',
      details: { trainContext: 32_768, contextSize: 65_536 },
    });
  });

  it('too large: with numbers and the nearest plan', async () => {
    const small = {
      ...options,
      measure: async (device: { description: string }) => ({
        device: device.description,
        onGpu: false,
        freeBytes: 1.2e9,
        totalBytes: 2e9,
        ramFreeBytes: 1.2e9,
      }),
    };
    // 4 x 8,192 tokens x 23,040 bytes of cache are 0.75 GB; weights, compute and slack take another 0.8.
    const wanted = order(await smolLm2Model(), { contextSize: 8192, sequences: 4 });
    const plan = await planServedModel(wanted, small);
    expect(plan).toMatchObject({ fits: false, nearest: { sequences: 2, contextSize: 8192, kvType: 'f16' } });
    await expect(loadServedModel(wanted, small)).rejects.toMatchObject({
      code: 'prerequisite',
      message: expect.stringMatching(/needs 1\.\d GB .* 1\.2 GB of 2\.0 GB are free .*; set model\.sequences 2/),
      details: { plan },
    });
  });

  it('with an adapter that is not there, or is none', async () => {
    const missing = { ...order(tiny), adapter: { path: join(folder, 'no.gguf'), sha256: '' } };
    await expect(loadServedModel(missing, options)).rejects.toMatchObject({ code: 'not_found' });
    const wrong = { ...order(tiny), adapter: { path: tiny, sha256: '' } };
    await expect(loadServedModel(wrong, options)).rejects.toMatchObject({ code: 'prerequisite' });
  });
});

describe('memory plan against what llama.cpp allocates', () => {
  let llama: Llama;
  beforeAll(async () => {
    llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, logLevel: LlamaLogLevel.error });
  });
  afterAll(() => llama?.dispose());

  it.each([
    ['tiny hybrid', tinyHybridModel, 1, 2048],
    ['tiny hybrid', tinyHybridModel, 4, 8192],
    ['SmolLM2', smolLm2Model, 1, 2048],
    ['SmolLM2', smolLm2Model, 4, 2048],
    ['SmolLM2', smolLm2Model, 2, 8192],
  ] as const)('%s: never below it nor half again above', async (_, model, sequences, contextSize) => {
    const path = await (model as () => Promise<string>)();
    const { shape } = await readModelFile(path);
    const request = { contextSize, sequences, kvType: 'f16' } as const;
    const planned = kvBytes(shape, request) + computeBytes(shape, request);
    const loaded = await llama.loadModel({ modelPath: path, gpuLayers: 0, useMmap: false });
    try {
      const context = await loaded.createContext({ ...request, batchSize: BATCH_TOKENS });
      const estimate = await loaded.fileInsights.estimateContextResourceRequirementsV2({
        contextSize,
        sequences,
        modelGpuLayers: 0,
        batchSize: BATCH_TOKENS,
      });
      for (const actual of [context.memoryUsage.ram, estimate.cpuRam]) {
        expect(planned).toBeGreaterThanOrEqual(actual);
        // 32 MiB: fixed parts dominate a toy model
        expect(planned).toBeLessThanOrEqual(1.5 * actual + 32 * 2 ** 20);
      }
      // Weights: a few per cent of alignment are what the slack is for.
      expect(1.05 * (shape.fileBytes + shape.tiedOutputBytes)).toBeGreaterThanOrEqual(loaded.memoryUsage.ram);
      await context.dispose();
    } finally {
      await loaded.dispose();
    }
  });
});

describe('what is told about a loaded model', () => {
  it('of the tiny hybrid', async () => {
    const model = await loadServedModel(order(tiny, { sequences: 2 }), options);
    try {
      expect(model.info).toMatchObject({
        id: 'm',
        architecture: 'qwen35',
        hybrid: true,
        eosToken: '<|im_end|>',
        addedBosId: null,
        contextSize: 1024,
        sequences: 2,
        vocabularySize: 359,
      });
      expect(model.info.chatTemplate).toContain('<|im_start|>');
      expect(model.info.device).toMatch(/^CPU \(\d+ threads/);
      expect(model.plan).toMatchObject({ fits: true, gpuLayers: 0 });
      const text = '<|im_start|>user\nZwölf 😀 boxes<|im_end|>\n';
      const special = model.tokenize(text, { special: true });
      expect(special[0]).toBe(1);
      expect(model.info.endIds).toContain(special.at(-2));
      expect(model.detokenize(special, { special: true })).toBe(text);
      const plain = model.tokenize('<|im_end|>', { special: false });
      expect(plain.some((id) => model.info.endIds.includes(id))).toBe(false);
      expect(model.detokenize(plain, { special: true })).toBe('<|im_end|>');
    } finally {
      await model.dispose();
      await model.dispose();
    }
  });
});
