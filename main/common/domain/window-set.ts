import { z } from 'zod';

/**
 * A window set: what the render stage writes and the trainer reads, in one folder.
 *
 * - `tokens.u32`: the ids of all windows, one after another, unsigned 32-bit little-endian;
 * - `windows.jsonl`: one `WindowRecord` a line, in the order of `tokens.u32`;
 * - `manifest.json`: a `WindowManifest`, written last: a folder without it is unfinished.
 */
export const windowFiles = { tokens: 'tokens.u32', windows: 'windows.jsonl', manifest: 'manifest.json' } as const;

const index = z.number().int().nonnegative();
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const range = { start: index, end: index };

export const WindowRole = z.enum(['orchestrator', 'subagent', 'auxiliary']);
export type WindowRole = z.infer<typeof WindowRole>;

/** A run of tokens of one origin, `start` (inclusive) to `end` (exclusive), counted from the window's first token. */
export const WindowBlock = z.object({
  ...range,
  /** header: system + first user message; overlap: earlier context, masked; context: masked; loss: trained */
  part: z.enum(['header', 'overlap', 'context', 'loss']),
  /** completion whose sampled ids these are; null for tokens the model did not sample, or sampled in another segment */
  completionId: z.string().nullable(),
});
export type WindowBlock = z.infer<typeof WindowBlock>;

export const WindowRecord = z.object({
  index,
  /** first token in tokens.u32, counted in tokens */
  offset: index,
  length: z.number().int().positive(),
  split: z.enum(['train', 'validate']),
  taskId: z.string(),
  role: WindowRole,
  episodeId: z.string(),
  threadId: z.string(),
  /** contiguous, covering the window */
  blocks: z.array(WindowBlock),
  /** tokens under a `loss` block: label = the id itself; every other label is -100. Position i is predicted from i - 1. */
  labelledTokens: index,
});
export type WindowRecord = z.infer<typeof WindowRecord>;

const Counts = z.object({ windows: index, tokens: index, labelledTokens: index });
export const WindowManifest = z.object({
  format: z.literal(1),
  windowTokens: index,
  overlapTokens: index,
  modelSha256: hash,
  /** of the adapter that was served on the model; null: none */
  adapterSha256: hash.nullable(),
  /** sha256 over the GGUF's tokens by id: each its length in bytes (u32, little-endian), then its UTF-8 */
  vocabularySha256: hash,
  files: z.object({ tokens: hash, windows: hash }),
  total: Counts,
  bySplit: z.record(z.enum(['train', 'validate']), Counts),
  byTask: z.record(z.string(), z.record(WindowRole, Counts)),
  /** context directly before a trained answer that was left out because both did not fit a window */
  leftOut: z.object({ windows: index, tokens: index }),
  episodes: z.array(
    z.object({
      episodeId: z.string(),
      taskId: z.string(),
      split: z.enum(['train', 'validate']),
      counts: Counts,
      /** words of the removed workflow text that survive in trained tokens */
      workflowOverlap: z.object({ ngram: index, shared: index, ofWorkflow: index, share: z.number() }),
    }),
  ),
});
export type WindowManifest = z.infer<typeof WindowManifest>;
