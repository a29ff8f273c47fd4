import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkpointBudget, kvBytes, type MemoryFree, type ModelShape, planMemory, refusal } from './memory-plan.ts';

/**
 * Qwen3.6-27B at Q4_K_M: 16 attention layers with 4 key-value heads of 256, 48 gated-DeltaNet layers with 48 value and 16
 * key heads of 128 and a convolution over 4 tokens.
 */
const QWEN_27B: ModelShape = {
  fileBytes: 16.5e9,
  embedding: 5120,
  feedForward: 17_408,
  vocabulary: 248_320,
  layers: 64,
  kvElementsPerToken: 16 * 4 * (256 + 256),
  recurrentBytes: 48 * 4 * (3 * (6144 + 2 * 16 * 128) + 128 * 6144),
  recurrentInner: 6144,
  tiedOutputBytes: 0,
  trainContext: 262_144,
};

const gpu = (freeGB: number, totalGB: number): MemoryFree => ({
  device: `cuda: ${totalGB} GB`,
  onGpu: true,
  freeBytes: freeGB * 1e9,
  totalBytes: totalGB * 1e9,
  ramFreeBytes: 100e9,
});
const cpu = (freeGB: number): MemoryFree => ({
  device: 'CPU (8 threads)',
  onGpu: false,
  freeBytes: freeGB * 1e9,
  totalBytes: 64e9,
  ramFreeBytes: freeGB * 1e9,
});
const request = { contextSize: 131_072, sequences: 4, kvType: 'f16' } as const;

describe('kvBytes', () => {
  it('of the 27B is 64 KiB a token and about 150 MiB of recurrent state a sequence', () => {
    const one = { contextSize: 1024, sequences: 1, kvType: 'f16' } as const;
    const growth = kvBytes(QWEN_27B, { ...one, contextSize: 2048 }) - kvBytes(QWEN_27B, one);
    expect(growth / 1024).toBe(64 * 1024);
    expect(QWEN_27B.recurrentBytes / 2 ** 20).toBeCloseTo(149.6, 1);
  });

  it('at q8_0 is 17/32 of f16, the recurrent state unchanged', () => {
    const attention = (kvType: 'f16' | 'q8_0') => kvBytes({ ...QWEN_27B, recurrentBytes: 0 }, { ...request, kvType });
    expect(attention('q8_0') / attention('f16')).toBeCloseTo(17 / 32, 12);
  });
});

describe('planMemory', () => {
  it('fits the default plan of the 27B on an 80 GB card', () => {
    const plan = planMemory({ shape: QWEN_27B, request, free: gpu(79, 80), adapterBytes: 0.87e9 });
    expect(plan.fits).toBe(true);
    expect(plan.nearest).toBeNull();
    expect(plan.gpuLayers).toBe(65);
    // 4 x 131,072 tokens x 64 KiB = 34.4 GB, and 0.63 GB of recurrent state
    expect(plan.parts.kv / 1e9).toBeCloseTo(34.99, 1);
    expect(plan.parts.slack).toBe(2.4e9);
    expect(plan.marginBytes).toBe(plan.freeBytes - plan.neededBytes);
  });

  it('on 48 GB offers three sequences, on 24 GB one with less context', () => {
    const large = planMemory({ shape: QWEN_27B, request, free: gpu(47, 48), adapterBytes: 0 });
    expect(large).toMatchObject({ fits: false, nearest: { sequences: 3, contextSize: 131_072, kvType: 'f16' } });
    const small = planMemory({ shape: QWEN_27B, request, free: gpu(23.5, 24), adapterBytes: 0 });
    expect(small).toMatchObject({ fits: false, nearest: { sequences: 1, kvType: 'f16' } });
    expect(small.nearest?.contextSize).toBeGreaterThan(30_000);
    expect(small.nearest?.contextSize).toBeLessThan(131_072);
    expect(small.nearest?.neededBytes).toBeLessThanOrEqual(23.5e9);
  });

  it('offers a quantised cache when nothing else fits, and nothing when that does not', () => {
    const request = { contextSize: 65_536, sequences: 1, kvType: 'f16' } as const;
    const options = { shape: { ...QWEN_27B, kvElementsPerToken: 64 * 8 * 512 }, request, adapterBytes: 0 };
    expect(planMemory({ ...options, free: gpu(22, 24) }).nearest).toMatchObject({ kvType: 'q8_0', sequences: 1 });
    expect(planMemory({ ...options, free: gpu(12, 12) }).nearest).toBeNull();
  });

  it('counts checkpoints on the CPU, where they share the memory, and not on a GPU', () => {
    const onCpu = planMemory({ shape: QWEN_27B, request, free: cpu(200), adapterBytes: 0 });
    const { weights, kv, compute, adapter, slack, checkpoints } = onCpu.parts;
    expect(checkpoints).toBe(4 * 8 * QWEN_27B.recurrentBytes);
    expect(onCpu.neededBytes).toBe(weights + kv + compute + adapter + slack + checkpoints);
    const onGpu = planMemory({ shape: QWEN_27B, request, free: gpu(79, 80), adapterBytes: 0 });
    expect(onGpu.parts.checkpoints).toBeGreaterThan(0);
    const device = onGpu.parts;
    expect(onGpu.neededBytes).toBe(device.weights + device.kv + device.compute + device.adapter + device.slack);
  });

  it('bounds checkpoints by a quarter of the free RAM', () => {
    const free = { ...gpu(79, 80), ramFreeBytes: 10e9 };
    // 2.5 GB / (4 x 157 MB) = 3.98
    expect(checkpointBudget({ shape: QWEN_27B, free }, request).count).toBe(3);
    expect(checkpointBudget({ shape: QWEN_27B, free: { ...free, ramFreeBytes: 1e9 } }, request).count).toBe(2);
    expect(checkpointBudget({ shape: { ...QWEN_27B, recurrentBytes: 0 }, free }, request)).toEqual({
      count: 0,
      bytes: 0,
    });
  });

  it('takes the larger of its own and the given context estimate', () => {
    const options = { shape: QWEN_27B, request, free: gpu(79, 80), adapterBytes: 0 };
    const own = planMemory(options);
    const floor = own.parts.kv + own.parts.compute + 5e9;
    expect(planMemory({ ...options, contextBytesFloor: floor }).neededBytes - own.neededBytes).toBeCloseTo(5e9, 0);
    expect(planMemory({ ...options, contextBytesFloor: 1 })).toEqual(own);
  });

  it('offers only plans that fit and ask for no more than was asked', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 160 }),
        fc.integer({ min: 1, max: 16 }),
        fc.integer({ min: 512, max: 262_144 }),
        (freeGB, sequences, contextSize) => {
          const plan = planMemory({
            shape: QWEN_27B,
            request: { contextSize, sequences, kvType: 'f16' },
            free: gpu(freeGB, 160),
            adapterBytes: 0,
          });
          expect(plan.fits).toBe(plan.neededBytes <= freeGB * 1e9);
          if (plan.nearest === null) return;
          expect(plan.nearest.neededBytes).toBeLessThanOrEqual(freeGB * 1e9);
          expect(plan.nearest.sequences).toBeLessThanOrEqual(sequences);
          expect(plan.nearest.contextSize).toBeLessThanOrEqual(Math.ceil(contextSize / 256) * 256);
        },
      ),
    );
  });
});

describe('refusal', () => {
  it('says what is needed, what is free and the way out', () => {
    const plan = planMemory({ shape: QWEN_27B, request, free: gpu(47, 48), adapterBytes: 0 });
    expect(refusal(plan, 'qwen3.6-27b')).toMatch(
      /^qwen3\.6-27b with 4 x 131072 tokens needs [\d.]+ GB \(weights 16\.5 GB, cache 35\.0 GB, .*\) and 47\.0 GB of 48\.0 GB are free on cuda: 48 GB; set model\.sequences 3, /,
    );
  });
});
