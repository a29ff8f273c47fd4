import { z } from 'zod';
import { WindowManifest, WindowRecord } from '../domain/window-set.ts';

/** What a cycle was rendered to, for a person who wants to see what will be trained. Window sets are never changed. */
const name = z.string().min(1).max(100);
const index = z.number().int().nonnegative();
/** by default the latest cycle that is rendered */
const cycle = z.number().int().min(1).optional();
const { total, leftOut } = WindowManifest.shape;
const { counts, workflowOverlap } = WindowManifest.shape.episodes.element.shape;

const RenderedEpisode = z.object({
  episodeId: z.string(),
  taskId: z.string(),
  run: z.number().int().describe('replicate, 1-based'),
  rank: z.number().int(),
  split: z.enum(['train', 'validate']),
  counts,
  workflowOverlap,
});
export type RenderedEpisode = z.infer<typeof RenderedEpisode>;

export const WindowSetSummary = z.object({
  windowSetId: z.string(),
  cycle: z.number().int(),
  folder: z.string().describe('absolute'),
  windowTokens: index,
  overlapTokens: index,
  total,
  leftOut,
  episodes: z.array(RenderedEpisode),
});
export type WindowSetSummary = z.infer<typeof WindowSetSummary>;

export const EpisodeWindows = RenderedEpisode.extend({
  windowSetId: z.string(),
  cycle: z.number().int(),
  /** what the orchestrator was given besides the bare prompt; "" for a bare run */
  removed: z.string(),
  windows: z.array(
    WindowRecord.extend({
      /** "orchestrator", or a worker's name */
      thread: z.string(),
      /** passages of the workflow, in lower-case words, that this window trains */
      survivors: z.array(z.string()),
    }),
  ),
});
export type EpisodeWindows = z.infer<typeof EpisodeWindows>;

/** Blocks of a window in order, spelled out; a character whose bytes lie in two blocks shows as U+FFFD in both. */
export const WindowText = z.object({
  index,
  blocks: z.array(WindowRecord.shape.blocks.element.extend({ text: z.string() })),
});
export type WindowText = z.infer<typeof WindowText>;

export const windowMethods = {
  'windows.list': { params: z.object({ name, cycle }), result: WindowSetSummary },
  /** `episode`: its id, or "<task>/<run>" with the run's number from 1 */
  'windows.episode': { params: z.object({ name, cycle, episode: z.string().min(1) }), result: EpisodeWindows },
  'windows.text': { params: z.object({ name, cycle, episodeId: z.string(), index }), result: WindowText },
} as const;
