import { z } from 'zod';

/**
 * What a judge and the proposer may know of an attempt: plain JSON, a function of the workspace's content and of how
 * the attempt ended. No times, absolute paths, owners or inode numbers, so equal work gives equal bytes. Names are
 * escaped (`escapeName`), file texts are raw: only rendering makes them safe to show.
 */
const count = z.number().int().nonnegative();

export const EvidenceClass = z.enum(['report', 'metrics', 'code', 'test', 'other']);
export type EvidenceClass = z.infer<typeof EvidenceClass>;

export const EvidenceEnding = z.object({
  outcome: z.enum(['completed', 'halted']),
  haltReason: z.string().nullable(),
  ending: z.string(),
});
export type EvidenceEnding = z.infer<typeof EvidenceEnding>;

/** One deliverable the task names, checked by program. `facts` are sentences without judgement. */
export const DeliverableCheck = z.object({
  path: z.string(),
  kind: z.string(),
  status: z.enum(['present', 'empty', 'missing', 'not-a-file']),
  bytes: count.nullable(),
  facts: z.array(z.string()),
});
export type DeliverableCheck = z.infer<typeof DeliverableCheck>;

/** `folder` entries are those that are counted but not opened (caches, repositories, too deep). */
export const TreeEntry = z.object({
  path: z.string(),
  type: z.enum(['file', 'folder', 'symlink', 'special', 'unreadable']),
  bytes: count.optional(),
  /** placed by the harness before the attempt began */
  provided: z.literal(true).optional(),
  image: z.object({ width: count, height: count }).optional(),
  /** entries of an unopened folder */
  entries: count.optional(),
});
export type TreeEntry = z.infer<typeof TreeEntry>;

/** Beginning and end of a text file; `tail` is "" and `unreadBytes` 0 when `head` is the whole file. */
export const Excerpt = z.object({
  path: z.string(),
  class: EvidenceClass,
  bytes: count,
  /** lower-case hex; null when the file is too large to hash */
  sha256: z.string().nullable(),
  head: z.string(),
  tail: z.string(),
  unreadBytes: count,
});
export type Excerpt = z.infer<typeof Excerpt>;

export const EvidenceBundle = z.object({
  version: z.literal(1),
  ending: EvidenceEnding,
  deliverables: z.array(DeliverableCheck),
  tree: z.object({
    entries: z.array(TreeEntry),
    files: count,
    bytes: count,
    /** entries seen but not kept in `entries` */
    omitted: count,
    /** false: the walk stopped at its bound, so `files` and `bytes` are lower bounds */
    complete: z.boolean(),
  }),
  /** by class, then deliverables first, then path */
  excerpts: z.array(Excerpt),
  /** text files that got no excerpt because the bundle was full */
  unexcerpted: count,
});
export type EvidenceBundle = z.infer<typeof EvidenceBundle>;
