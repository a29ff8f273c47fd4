import { z } from 'zod';

/** Bytes a model needs when served, part by part, against what is free now. */
export const MemoryPlan = z.object({
  fits: z.boolean(),
  device: z.string(),
  contextSize: z.number().int(),
  sequences: z.number().int(),
  kvType: z.enum(['f16', 'q8_0']),
  gpuLayers: z.number().int(),
  parts: z.object({
    weights: z.number(),
    kv: z.number().describe('all sequences, attention and recurrent state'),
    compute: z.number(),
    checkpoints: z.number(),
    adapter: z.number(),
    slack: z.number(),
  }),
  neededBytes: z.number(),
  freeBytes: z.number(),
  totalBytes: z.number(),
  marginBytes: z.number().describe('free - needed; negative when it does not fit'),
  nearest: z
    .object({
      contextSize: z.number().int(),
      sequences: z.number().int(),
      kvType: z.enum(['f16', 'q8_0']),
      neededBytes: z.number(),
    })
    .nullable()
    .describe('largest smaller plan that fits, when this one does not'),
});
export type MemoryPlan = z.infer<typeof MemoryPlan>;

/** What llama.cpp computes on, and the memory free there now. */
export const DeviceReport = z.object({
  /** "cuda: NVIDIA H200", "CPU (2 threads)" */
  device: z.string(),
  onGpu: z.boolean(),
  freeBytes: z.number(),
  totalBytes: z.number(),
  ramFreeBytes: z.number(),
});
export type DeviceReport = z.infer<typeof DeviceReport>;
