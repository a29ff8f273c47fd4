import { describe, expect, it } from 'vitest';
import { samplerOptions, TOP_K_CAP } from './sampling.ts';

const request = { temperature: 0.6, topP: 0.95, topK: 20, seed: 7 };

describe('samplerOptions', () => {
  it('passes a request through, capping the candidates', () => {
    expect(samplerOptions(request, 0)).toEqual(request);
    expect(samplerOptions({ ...request, topK: 0 }, 0).topK).toBe(TOP_K_CAP);
    expect(samplerOptions({ ...request, topK: 100_000 }, 0).topK).toBe(TOP_K_CAP);
  });

  it('keeps negative and large seeds apart', () => {
    expect(samplerOptions({ ...request, seed: -1 }, 0).seed).toBe(0xffffffff);
    expect(samplerOptions({ ...request, seed: 2 ** 32 + 5 }, 0).seed).toBe(5);
  });

  it('draws from another stream after a resume, the same one each time', () => {
    const resumed = samplerOptions(request, 12).seed;
    expect(resumed).not.toBe(7);
    expect(resumed).not.toBe(samplerOptions(request, 13).seed);
    expect(samplerOptions(request, 12).seed).toBe(resumed);
  });
});
