import { join } from 'node:path';
import { z } from 'zod';
import type { DomainEvent } from '../../common/domain/events.ts';
import { type RunStanding, standingOf } from '../../common/domain/quarantine.ts';
import type { Task } from '../../common/domain/task.ts';
import { newId } from '../../node/ids.ts';
import { CHECKS_VERSION, runChecks } from '../integrity/run-checks.ts';
import type { StageContext } from '../runner/stage.ts';
import type { AttemptRow } from '../store/repositories/episodes.ts';
import type { CycleServices } from './services.ts';

const Inputs = z.array(z.object({ path: z.string(), sha256: z.string(), bytes: z.number() }));

/**
 * Checks what a settled attempt left behind, unless these checks did already. Findings that are known keep what a person
 * decided about them. Nothing of the attempt may be running.
 */
export async function checkAttempt(services: CycleServices, task: Task, attempt: AttemptRow): Promise<void> {
  const { store } = services;
  const { attemptId, episodeId, experimentId } = attempt;
  if ((store.integrity.checkOf(attemptId)?.checksVersion ?? 0) >= CHECKS_VERSION) return;
  const problems = await runChecks({
    folder: join(services.dataFolder, attempt.workspace),
    deliverables: task.manifest.deliverables,
    inputs: Inputs.parse(store.artifacts.json(attempt.inputsHash)),
  });
  const keyOf = ({ checkId, path }: { checkId: string; path: string }): string => `${checkId} ${path}`;
  const known = new Set(
    store.integrity
      .findingsOf(episodeId)
      .filter((row) => row.attemptId === attemptId)
      .map(keyOf),
  );
  const fresh = problems.filter((problem) => !known.has(keyOf(problem)));
  store.append(
    {
      type: 'episode.checked',
      experimentId,
      episodeId,
      attemptId,
      checksVersion: CHECKS_VERSION,
      findings: problems.length,
    },
    ...fresh.map(
      ({ checkId, severity, path, message, details }): DomainEvent => ({
        type: 'finding.recorded',
        findingId: newId('fi'),
        experimentId,
        episodeId,
        attemptId,
        checkId,
        severity,
        path,
        message,
        detailsJson: JSON.stringify(details),
      }),
    ),
  );
}

/** Checks every settled run of a task's collection that is not checked yet. */
export async function checkCollected(services: CycleServices, context: StageContext, task: Task): Promise<void> {
  const { experimentId, cycle } = context;
  const key = { experimentId, cycle, taskId: task.manifest.id, stage: 'collect' as const };
  for (const { attempt } of services.store.episodes.ofTask(key))
    if (attempt !== null) await checkAttempt(services, task, attempt);
}

/** What a run's findings mean for its selection; always free when `integrity.quarantine` is off. */
export function standingOfRun({ store }: CycleServices, { config }: StageContext, episodeId: string): RunStanding {
  if (!config.integrity.quarantine) return 'free';
  return standingOf(store.integrity.findingsOf(episodeId).map((row) => row.state));
}
