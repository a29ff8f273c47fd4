import type { EpisodeResult } from '../agent-runtime.ts';
import type { DeliverableCheck, EvidenceBundle, EvidenceEnding } from '../evidence/bundle.ts';

/** One version as later proposals see it. */
export interface HistoryEntry {
  readonly version: number;
  readonly basedOn: number | null;
  /** null: the proposal could not be used, so there was no plan and no execution */
  readonly block: string | null;
  readonly ending: EvidenceEnding | null;
  readonly deliverables: readonly DeliverableCheck[];
  readonly comparisons: readonly Comparison[];
}

export interface Comparison {
  /** "the reference run", "version 3" */
  readonly against: string;
  readonly result: 'win' | 'loss' | 'tie';
  readonly valid: boolean;
  readonly rationale: string;
}

/** All that the proposer is shown (method of the paper: its optimizer's inputs). */
export interface ProposerInputs {
  readonly barePrompt: string;
  readonly current: { readonly version: number; readonly block: string };
  /** null when the current design is the best; `reasons`: why judges preferred it */
  readonly best: { readonly version: number; readonly block: string; readonly reasons: string } | null;
  /** block of version 0 */
  readonly initialBlock: string;
  /** of the current version's workspace, with how its execution ended */
  readonly evidence: EvidenceBundle;
  readonly lastToolCalls: EpisodeResult['lastToolCalls'];
  /** ascending by version */
  readonly history: readonly HistoryEntry[];
  readonly feedback: string | null;
}

/** What the proposer needs to know of blocks; given by the caller, so that this folder holds no second parser. */
export interface BlockTools {
  /** short phrases, empty when the block can be used */
  problems(block: string): readonly string[];
  /** compact difference of at most `maxCharacters` */
  diff(before: string, after: string, maxCharacters: number): string;
}
