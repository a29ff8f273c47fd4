import { z } from 'zod';
import { ParityReport } from '../domain/parity-report.ts';

/** How a training becomes a generation, as clients ask for it. */
const name = z.string().min(1).max(100);
const cycle = z.number().int().min(1).default(1);
const hash = z.string();

export const ExportReport = z.object({
  cycle: z.number().int(),
  /** null: not trained yet */
  training: z
    .object({ trainingId: z.string(), state: z.string(), step: z.number().int(), steps: z.number().int() })
    .nullable(),
  checkpoints: z.array(
    z.object({
      step: z.number().int(),
      bytes: z.number(),
      /** validation loss; null: not validated, or not finite */
      loss: z.number().nullable(),
      chosen: z.boolean(),
    }),
  ),
  choice: z
    .object({ step: z.number().int(), by: z.enum(['lowest-validation-loss', 'person']), note: z.string() })
    .nullable(),
  /** of the chosen checkpoint */
  adapter: z.object({ sha256: hash, path: z.string(), bytes: z.number(), rank: z.number().int() }).nullable(),
  parity: ParityReport.nullable(),
  /** null: not registered */
  generation: z.object({ number: z.number().int(), adapterSha256: hash, card: z.string() }).nullable(),
});
export type ExportReport = z.infer<typeof ExportReport>;

export const MergedModel = z.object({
  folder: z.string(),
  /** in `folder` */
  safetensors: z.string(),
  gguf: z.string(),
  ggufBytes: z.number(),
  ggufSha256: hash,
});
export type MergedModel = z.infer<typeof MergedModel>;

export const exportMethods = {
  /** where the export of a cycle stands */
  'export.show': { params: z.object({ name, cycle }), result: ExportReport },
  /** a person's choice, in the place of an earlier one; `conflict` once the cycle's generation is registered */
  'export.choose': {
    params: z.object({ name, cycle, step: z.number().int().min(1), note: z.string().max(2000).default('') }),
    result: ExportReport,
  },
  /** base and adapters of L(cycle) as one model, in a new folder; answers when it is written */
  'export.merge': {
    params: z.object({
      name,
      cycle,
      type: z.enum(['bf16', 'f16', 'q8_0']).default('bf16'),
      out: z.string().min(1).describe('absolute path of a folder that does not exist'),
    }),
    result: MergedModel,
  },
} as const;
