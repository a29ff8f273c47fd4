import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cancelled, isCancelled, MassError, toErrorData } from '../../common/base/errors.ts';
import type { EventOf, StageName } from '../../common/domain/events.ts';
import type { Task } from '../../common/domain/task.ts';
import { diskError } from '../../node/disk-error.ts';
import { newId } from '../../node/ids.ts';
import type { EpisodeResult } from '../agents/agent-runtime.ts';
import type { StageContext } from '../runner/stage.ts';
import { refusingFullDisk, requireDiskSpace } from '../sandbox/full-disk.ts';
import type { AttemptRow, EpisodeRow } from '../store/repositories/episodes.ts';
import type { CycleServices } from './services.ts';
import { threadRecorder } from './thread-recorder.ts';
import { workspaceManifest } from './workspace-manifest.ts';

export interface EpisodeSpec {
  readonly stage: StageName;
  readonly task: Task;
  /** null: the bare prompt */
  readonly workflowVersion: number | null;
  readonly replicate: number;
  readonly seed: number;
  /** the orchestrator's first message */
  readonly prompt: string;
  /** of a rollout: the set it belongs to */
  readonly setId?: string;
}

/** Attempts that end by infrastructure before an episode gives up for this run. */
const MAX_ATTEMPTS_PER_RUN = 3;

/**
 * Runs an episode unless it is settled. Each attempt has its own row and workspace, and a retry overwrites nothing. A
 * model failure (`halted`) settles the episode: it is evidence. Infrastructure trouble is retried with growing delays
 * and is never judged; after the third the error is thrown and the episode stays open for the next run.
 */
export async function runEpisode(
  services: CycleServices,
  context: StageContext,
  spec: EpisodeSpec,
): Promise<AttemptRow> {
  const episode = planEpisode(services, context, spec);
  for (let retry = 0; ; retry++) {
    const settled = services.store.episodes.settledAttempt(episode.episodeId);
    if (settled) return settled;
    if (context.signal.aborted) throw cancelled();
    try {
      await requireDiskSpace(services.dataFolder);
      await runAttempt(services, context, { episode, spec });
    } catch (thrown) {
      const error = diskError(thrown) ?? thrown;
      if (!worthRetrying(error) || retry + 1 >= MAX_ATTEMPTS_PER_RUN) throw error;
      services.logger.log('warn', 'An attempt ended by infrastructure and will be retried.', {
        episodeId: episode.episodeId,
        error: toErrorData(error),
      });
      await sleep(services.retryDelay(retry), undefined, { signal: context.signal });
    }
  }
}

/** Trouble that may pass. What a person must mend (memory, disk, a changed file) is the same a second later. */
const worthRetrying = (error: unknown): boolean =>
  !isCancelled(error) && ['infrastructure', 'internal'].includes(toErrorData(error).code);

function planEpisode({ store }: CycleServices, { experimentId, cycle }: StageContext, spec: EpisodeSpec): EpisodeRow {
  const { stage, workflowVersion, replicate, seed } = spec;
  const taskId = spec.task.manifest.id;
  const setId = spec.setId ?? null;
  const find = () =>
    store.episodes
      .ofTask({ experimentId, cycle, stage, taskId })
      .find((row) => row.workflowVersion === workflowVersion && row.replicate === replicate && row.setId === setId);
  const known = find();
  if (known) return known;
  store.append({
    type: 'episode.planned',
    episodeId: newId('ep'),
    experimentId,
    cycle,
    stage,
    taskId,
    workflowVersion,
    replicate,
    seed,
    ...(setId === null ? {} : { setId }),
  });
  return find() as EpisodeRow;
}

interface AttemptInput {
  readonly episode: EpisodeRow;
  readonly spec: EpisodeSpec;
}

async function runAttempt(
  services: CycleServices,
  context: StageContext,
  { episode, spec }: AttemptInput,
): Promise<void> {
  const { store, sandbox, runtime, endpoints } = services;
  const { experimentId } = context;
  const attemptId = newId('at');
  const workspace = join('workspaces', attemptId);
  const absolute = join(services.dataFolder, workspace);
  await sandbox.createWorkspace(absolute);
  const inputs = await services.placeInputs(spec.task, absolute);
  store.appendWith(() => [
    {
      type: 'attempt.started',
      attemptId,
      episodeId: episode.episodeId,
      experimentId,
      number: store.episodes.attempts(episode.episodeId).length + 1,
      generationId: services.generationId,
      workspace,
      sandboxMode: sandbox.mode,
      promptHash: store.artifacts.put(spec.prompt),
      inputsHash: store.artifacts.putJson(inputs),
      runtime: runtime.id,
      runtimePromptsJson: JSON.stringify(runtime.promptHashes),
    },
  ]);
  const ended = attemptEnder(services, { attemptId, episodeId: episode.episodeId, experimentId });
  let endpoint: Awaited<ReturnType<typeof endpoints.open>> | undefined;
  try {
    endpoint = await endpoints.open(`attempt:${attemptId}`);
    const { config } = context;
    const result = await runtime.runEpisode({
      attemptId,
      prompt: spec.prompt,
      workspace: absolute,
      endpoint,
      sandbox: refusingFullDisk(sandbox),
      sandboxLimits: config.sandbox,
      executor: config.executor,
      sampling: config.sampling,
      seed: episode.seed,
      seedPolicy: config.seedPolicy,
      environment: services.environment,
      observer: threadRecorder(store, { experimentId, ownerKind: 'attempt', ownerId: attemptId }),
      signal: context.signal,
    });
    await ended.settle(result, absolute);
  } catch (error) {
    ended.fail(error);
    throw error;
  } finally {
    await endpoint?.close();
  }
}

type AttemptKey = Pick<EventOf<'attempt.ended'>, 'attemptId' | 'episodeId' | 'experimentId'>;

/** The two ways an attempt ends: with a result of the model, or without one. */
function attemptEnder({ store }: CycleServices, key: AttemptKey) {
  return {
    async settle(result: EpisodeResult, workspace: string): Promise<void> {
      const manifest = await workspaceManifest(workspace);
      store.appendWith(() => [
        {
          type: 'attempt.ended',
          ...key,
          outcome: result.outcome,
          haltReason: result.haltReason,
          ending: result.ending,
          turns: result.turns,
          delegations: result.delegations,
          toolCalls: result.toolCalls,
          promptTokens: result.promptTokens,
          generatedTokens: result.generatedTokens,
          bodyHash: store.artifacts.putJson({ finalReport: result.finalReport, lastToolCalls: result.lastToolCalls }),
          filesHash: store.artifacts.putJson(manifest),
          workspaceBytes: manifest.bytes,
        },
      ]);
    },
    fail(error: unknown): void {
      if (store.episodes.attemptById(key.attemptId)?.outcome) return; // settled, and something after it failed
      const { message, cause } = toErrorData(error);
      store.appendEnd({
        type: 'attempt.ended',
        ...key,
        outcome: isCancelled(error) ? 'cancelled' : 'infrastructure',
        haltReason: null,
        ending: cause ? `${message} (${cause})` : message,
        ...nothingDone,
      });
    },
  };
}

/** Counts of an attempt that left no result. */
export const nothingDone = {
  turns: 0,
  delegations: 0,
  toolCalls: 0,
  promptTokens: 0,
  generatedTokens: 0,
  bodyHash: null,
  filesHash: null,
  workspaceBytes: 0,
} as const;

/** The settled attempt of an episode that a later unit builds on. */
export function requireSettled(services: CycleServices, episodeId: string): AttemptRow {
  const attempt = services.store.episodes.settledAttempt(episodeId);
  if (attempt) return attempt;
  throw new MassError('internal', `Episode ${episodeId} is not settled, so it cannot be judged or ranked.`);
}
