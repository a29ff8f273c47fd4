import { MassError } from '../../common/base/errors.ts';
import { retentionPolicy } from '../../common/domain/retention.ts';
import { proposerSeed, seedBaseOfCycle } from '../../common/domain/seeds.ts';
import type { Task } from '../../common/domain/task.ts';
import { parseWorkflow } from '../../common/domain/workflow-block.ts';
import { newId } from '../../node/ids.ts';
import { proposeWorkflow } from '../agents/proposer/propose-workflow.ts';
import type { Comparison, HistoryEntry, ProposerInputs } from '../agents/proposer/proposer-inputs.ts';
import type { StageContext } from '../runner/stage.ts';
import { blockTools } from './block-tools.ts';
import { evidenceOf } from './judge-units.ts';
import { readSearch, type TaskSearch } from './search-history.ts';
import type { CycleServices } from './services.ts';
import { threadRecorder } from './thread-recorder.ts';

interface ProposeUnit {
  readonly task: Task;
  readonly version: number;
  readonly basedOn: number;
}

/**
 * Asks the proposer for the next version and records proposal and version together. An unusable proposal consumes the
 * update as `proposal_failed`: it is a fact of the search, not an error.
 */
export async function propose(services: CycleServices, context: StageContext, unit: ProposeUnit): Promise<void> {
  const { store } = services;
  const { experimentId, cycle, config } = context;
  const { task, version, basedOn } = unit;
  const taskId = task.manifest.id;
  const proposalId = newId('pp');
  const threadId = `${proposalId}:p0`;
  const seed = proposerSeed({
    seedBase: seedBaseOfCycle(config.search.seedBase, cycle),
    taskNumber: task.manifest.number,
  });
  const inputs = await proposerInputs(services, context, unit);
  const recorder = threadRecorder(store, { experimentId, ownerKind: 'proposal', ownerId: proposalId });
  const endpoint = await services.endpoints.open(`proposal:${proposalId}`);
  try {
    await recorder.threadStarted({
      threadId,
      role: 'proposer',
      name: 'proposer',
      parentThreadId: null,
      parentCallId: null,
      assignment: null,
    });
    const proposal = await proposeWorkflow({
      endpoint,
      threadId,
      inputs,
      tools: blockTools,
      sampling: config.sampling,
      seed,
      callTokens: config.search.callTokens,
      safetyTokens: config.executor.contextSafety,
      signal: context.signal,
    });
    const { block, messages: _messages, thread: _thread, ...content } = proposal;
    store.appendWith(() => [
      {
        type: 'proposal.recorded',
        proposalId,
        experimentId,
        cycle,
        taskId,
        version,
        basedOn,
        valid: proposal.valid,
        tries: proposal.tries.length,
        seed,
        contentHash: store.artifacts.putJson(content),
        promptSha256: proposal.promptSha256,
      },
      {
        type: 'workflow.added',
        workflowId: newId('wf'),
        experimentId,
        cycle,
        taskId,
        version,
        parentVersion: basedOn,
        author: 'proposer',
        status: block === null ? 'proposal_failed' : 'proposed',
        blockHash: block === null ? null : store.artifacts.put(block),
        partsJson: block === null ? '{}' : JSON.stringify(parseWorkflow(block)),
        proposalId,
        note: block === null ? proposal.problems.join('; ') : proposal.changes,
      },
      { type: 'thread.ended', threadId, experimentId, outcome: proposal.valid ? 'valid' : 'invalid' },
    ]);
  } finally {
    await endpoint.close();
  }
}

async function proposerInputs(
  services: CycleServices,
  context: StageContext,
  { task, basedOn }: ProposeUnit,
): Promise<ProposerInputs> {
  const { store } = services;
  const search = readSearch(services, context, task.manifest.id);
  const blockOf = (version: number): string => {
    const hash = search.versions.find((row) => row.version === version)?.blockHash;
    if (!hash) throw new MassError('internal', `v${version} of "${task.manifest.id}" has no workflow text.`);
    return store.artifacts.text(hash);
  };
  const champion = retentionPolicy(context.config.search.policy).champion(search.history);
  const episode = search.episodeOf(basedOn);
  if (!episode?.attempt) throw new MassError('internal', `v${basedOn} of "${task.manifest.id}" was not executed yet.`);
  const body = episode.attempt.bodyHash
    ? (store.artifacts.json(episode.attempt.bodyHash) as Pick<ProposerInputs, 'lastToolCalls'>)
    : null;
  const history: HistoryEntry[] = [];
  for (const row of search.versions) history.push(await historyEntry(services, { search, task, version: row.version }));
  const best =
    champion.version === basedOn
      ? null
      : {
          version: champion.version,
          block: blockOf(champion.version),
          reasons: comparisonsOf(services, search, champion.version)
            .filter((comparison) => comparison.result === 'win')
            .map((comparison) => comparison.rationale)
            .join('\n'),
        };
  return {
    barePrompt: task.barePrompt,
    current: { version: basedOn, block: blockOf(basedOn) },
    best,
    initialBlock: blockOf(0),
    evidence: await evidenceOf(services, task, episode.episodeId),
    lastToolCalls: body?.lastToolCalls ?? [],
    history,
    feedback: null,
  };
}

async function historyEntry(
  services: CycleServices,
  { search, task, version }: { search: TaskSearch; task: Task; version: number },
): Promise<HistoryEntry> {
  const row = search.versions.find((candidate) => candidate.version === version);
  const episode = search.episodeOf(version);
  const evidence = episode?.attempt ? await evidenceOf(services, task, episode.episodeId) : null;
  return {
    version,
    basedOn: row?.parentVersion ?? null,
    block: row?.blockHash ? services.store.artifacts.text(row.blockHash) : null,
    ending: evidence?.ending ?? null,
    deliverables: evidence?.deliverables ?? [],
    comparisons: comparisonsOf(services, search, version),
  };
}

/** What judgments said of a version as challenger. */
function comparisonsOf(services: CycleServices, search: TaskSearch, version: number): Comparison[] {
  const episode = search.episodeOf(version);
  return search.judgments
    .filter((row) => row.result !== null && row.firstEpisodeId === episode?.episodeId)
    .map((row) => {
      const against =
        row.secondEpisodeId === search.episodeOf('reference')?.episodeId
          ? null
          : versionOf(search, row.secondEpisodeId);
      const presentations = services.store.judgments.presentations(row.judgmentId);
      const rationales = presentations.map(
        (p) => (services.store.artifacts.json(p.contentHash) as { rationale: string }).rationale,
      );
      return {
        against: against === null ? 'the reference run' : `version ${against}`,
        result: row.result === 'first' ? 'win' : row.result === 'second' ? 'loss' : 'tie',
        valid: row.invalidPresentations === 0,
        rationale: rationales.join('\n'),
      };
    });
}

const versionOf = (search: TaskSearch, episodeId: string): number | null =>
  search.versions.find((row) => search.episodeOf(row.version)?.episodeId === episodeId)?.version ?? null;
