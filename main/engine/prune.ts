import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Experiment } from './experiments.ts';
import type { AttemptRow } from './store/repositories/episodes.ts';
import type { Store } from './store/store.ts';
import { walkWorkspace } from './workspace/walk.ts';

/**
 * Workspaces nothing refers to: attempts that ended by infrastructure, interruption or cancellation. Settled attempts
 * are evidence of judgments, selections and reports and are never removed.
 */
export function prunable(store: Store, experiment: Experiment): AttemptRow[] {
  return store.episodes
    .attemptsOfExperiment(experiment.experimentId)
    .filter(
      (attempt) =>
        attempt.pruned === 0 && ['infrastructure', 'interrupted', 'cancelled'].includes(attempt.outcome ?? ''),
    );
}

/**
 * Removes them, or with `dryRun` only adds up what removing would free. The rows stay and say so. A folder is gone before
 * its row is marked, so a kill in between is repeated.
 */
export async function prune(store: Store, experiment: Experiment, { dryRun }: { dryRun: boolean }) {
  const attempts = prunable(store, experiment);
  let bytes = 0;
  for (const attempt of attempts) {
    const folder = join(store.folder, attempt.workspace);
    const size = await folderBytes(folder);
    bytes += size;
    if (dryRun) continue;
    await rm(folder, { recursive: true, force: true });
    store.append({
      type: 'pruned',
      experimentId: experiment.experimentId,
      attemptIds: [attempt.attemptId],
      bytes: size,
    });
  }
  return { attempts: attempts.length, bytes };
}

async function folderBytes(folder: string): Promise<number> {
  const { entries } = await walkWorkspace(folder);
  return entries.reduce((sum, entry) => sum + (entry.bytes ?? 0), 0);
}
