import type { Severity } from '../../common/domain/integrity-events.ts';
import type { Deliverable } from '../../common/domain/task.ts';
import type { Walk } from '../workspace/walk.ts';

/** A file the harness placed before the run and that the run may only read. `path` is relative to the workspace. */
export interface ProtectedFile {
  readonly path: string;
  readonly sha256: string;
  readonly bytes: number;
}

/** A quiet workspace with what the task says about it. Its content is the model's: hostile until proven otherwise. */
export interface CheckedWorkspace {
  /** absolute */
  readonly folder: string;
  readonly deliverables: readonly Deliverable[];
  readonly inputs: readonly ProtectedFile[];
  readonly walk: Walk;
}

export interface FoundProblem {
  /** "metrics.constant": the check, and what it found */
  readonly checkId: string;
  readonly severity: Severity;
  /** relative to the workspace, escaped; '' when the whole workspace is meant */
  readonly path: string;
  /** one sentence with path and value */
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** Deterministic in the workspace's content, bounded in time and memory, follows no link, asks no model. */
export interface IntegrityCheck {
  readonly id: string;
  run(workspace: CheckedWorkspace): Promise<readonly FoundProblem[]>;
}
