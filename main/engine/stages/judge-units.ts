import { join } from 'node:path';
import { cancelled } from '../../common/base/errors.ts';
import type { JudgmentPurpose, PairResult, StageName } from '../../common/domain/events.ts';
import type { Task } from '../../common/domain/task.ts';
import { newId } from '../../node/ids.ts';
import { judgePair } from '../agents/evaluator/judge-pair.ts';
import { type PairMember, presentationsOf, resolveOrders } from '../agents/evaluator/orders.ts';
import type { EvidenceBundle } from '../agents/evidence/bundle.ts';
import { collectEvidence } from '../agents/evidence/collect.ts';
import type { StageContext } from '../runner/stage.ts';
import type { JudgmentRow } from '../store/repositories/judgments.ts';
import { requireSettled } from './run-episode.ts';
import type { CycleServices, PlacedFile } from './services.ts';
import { threadRecorder } from './thread-recorder.ts';

export interface JudgmentSpec {
  readonly stage: StageName;
  readonly purpose: JudgmentPurpose;
  readonly task: Task;
  /** the challenger of a search, or the match's first */
  readonly firstEpisodeId: string;
  /** the incumbent of a search, or the match's second */
  readonly secondEpisodeId: string;
  readonly seed: number;
  /** of a comparison of rollouts, which is always judged in both orders */
  readonly comparisonId?: string;
}

/** The row of a judgment, made if it is new; decided or not. */
export function openJudgment(services: CycleServices, context: StageContext, spec: JudgmentSpec): JudgmentRow {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const taskId = spec.task.manifest.id;
  const comparisonId = spec.comparisonId ?? null;
  const find = () =>
    store.judgments
      .ofTask({ experimentId, cycle, taskId, stage: spec.stage })
      .find(
        (row) =>
          row.purpose === spec.purpose &&
          row.comparisonId === comparisonId &&
          row.firstEpisodeId === spec.firstEpisodeId &&
          row.secondEpisodeId === spec.secondEpisodeId,
      );
  const known = find();
  if (known) return known;
  store.append({
    type: 'judgment.opened',
    judgmentId: newId('jd'),
    experimentId,
    cycle,
    stage: spec.stage,
    purpose: spec.purpose,
    taskId,
    firstEpisodeId: spec.firstEpisodeId,
    secondEpisodeId: spec.secondEpisodeId,
    orders: comparisonId === null ? config.judging.orders : 2,
    seed: spec.seed,
    ...(comparisonId === null ? {} : { comparisonId }),
  });
  return find() as JudgmentRow;
}

/** Presentations of a judgment that are not recorded yet. With one order the second (the incumbent) is shown as A in a search, the first in a match. */
export function missingPresentations(services: CycleServices, judgment: JudgmentRow): PairMember[] {
  const single = judgment.purpose === 'match' ? 'first' : 'second';
  const recorded = new Set(services.store.judgments.presentations(judgment.judgmentId).map((row) => row.shownAsA));
  return presentationsOf(judgment.orders, single).filter((member) => !recorded.has(member));
}

/** Shows one order of a pair to the evaluator and records its verdict. */
export async function present(
  services: CycleServices,
  context: StageContext,
  unit: { readonly judgment: JudgmentRow; readonly task: Task; readonly shownAsA: PairMember },
): Promise<void> {
  if (context.signal.aborted) throw cancelled();
  const { store } = services;
  const { judgment, task, shownAsA } = unit;
  const { experimentId, config } = context;
  const presentationId = newId('pr');
  const threadId = `${presentationId}:e0`;
  const first = await evidenceOf(services, task, judgment.firstEpisodeId);
  const second = await evidenceOf(services, task, judgment.secondEpisodeId);
  const endpoint = await services.endpoints.open(`presentation:${presentationId}`);
  const recorder = threadRecorder(store, { experimentId, ownerKind: 'presentation', ownerId: presentationId });
  try {
    await recorder.threadStarted({
      threadId,
      role: 'evaluator',
      name: 'evaluator',
      parentThreadId: null,
      parentCallId: null,
      assignment: null,
    });
    const verdict = await judgePair({
      endpoint,
      threadId,
      task,
      a: shownAsA === 'first' ? first : second,
      b: shownAsA === 'first' ? second : first,
      sampling: config.sampling,
      seed: judgment.seed,
      callTokens: config.judging.callTokens,
      safetyTokens: config.executor.contextSafety,
      signal: context.signal,
    });
    const { rationale, citations, unknownCitations, criteria, persona, truncations, tries } = verdict;
    store.appendWith(() => [
      {
        type: 'presentation.recorded',
        presentationId,
        judgmentId: judgment.judgmentId,
        experimentId,
        shownAsA,
        seed: judgment.seed,
        verdict: verdict.verdict,
        valid: verdict.valid,
        tries: tries.length,
        contentHash: store.artifacts.putJson({
          rationale,
          citations,
          unknownCitations,
          criteria,
          persona,
          truncations,
          tries,
        }),
        promptSha256: verdict.promptSha256,
        firstEvidenceHash: store.artifacts.putJson(first),
        secondEvidenceHash: store.artifacts.putJson(second),
      },
      { type: 'thread.ended', threadId, experimentId, outcome: verdict.valid ? verdict.verdict : 'invalid' },
    ]);
  } finally {
    await endpoint.close();
  }
}

/** Decides a judgment whose presentations are all recorded; null when some are missing. Deciding twice changes nothing. */
export function decideJudgment(services: CycleServices, judgment: JudgmentRow): PairResult | null {
  const { store } = services;
  const row = store.judgments.byId(judgment.judgmentId) ?? judgment;
  if (row.result) return row.result;
  if (missingPresentations(services, row).length > 0) return null;
  const presentations = store.judgments.presentations(row.judgmentId);
  const resolution = resolveOrders(
    presentations.map(({ shownAsA, verdict, valid }) => ({ shownAsA, verdict, valid: valid === 1 })),
  );
  store.append({
    type: 'judgment.decided',
    judgmentId: row.judgmentId,
    experimentId: row.experimentId,
    result: resolution.result,
    invalidPresentations: resolution.invalid,
  });
  return resolution.result;
}

/** A whole judgment: what is missing of it, then the decision. */
export async function judge(services: CycleServices, context: StageContext, spec: JudgmentSpec): Promise<void> {
  const judgment = openJudgment(services, context, spec);
  for (const shownAsA of missingPresentations(services, judgment))
    await present(services, context, { judgment, task: spec.task, shownAsA });
  decideJudgment(services, judgment);
}

/** What a settled episode's workspace shows; the same workspace gives the same bundle. */
export async function evidenceOf(services: CycleServices, task: Task, episodeId: string): Promise<EvidenceBundle> {
  const attempt = requireSettled(services, episodeId);
  const inputs = services.store.artifacts.json(attempt.inputsHash) as PlacedFile[];
  return collectEvidence({
    workspace: join(services.dataFolder, attempt.workspace),
    task: task.manifest,
    inputs: inputs.map((file) => file.path),
    ending: {
      outcome: attempt.outcome === 'completed' ? 'completed' : 'halted',
      haltReason: attempt.haltReason,
      ending: attempt.ending,
    },
  });
}
