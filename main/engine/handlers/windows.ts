import { join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage } from '../../common/domain/chat.ts';
import type { WindowManifest, WindowRecord } from '../../common/domain/window-set.ts';
import { WorkflowOverlapCounter } from '../../common/domain/word-overlap.ts';
import type { EpisodeWindows, RenderedEpisode, WindowSetSummary } from '../../common/protocol/windows.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { generationOfCycle } from '../cycle-generation.ts';
import type { SharedVocabulary } from '../endpoints/shared-vocabulary.ts';
import { type Experiment, requireExperiment } from '../experiments.ts';
import { type GenerationTarget, serveTarget } from '../serve-target.ts';
import { barePromptOf, workflowOf } from '../stages/render.ts';
import { spokenTexts } from '../stages/render-episode.ts';
import { idsOf, type PlacedWindowSet, readManifest, recordsOf } from '../stages/window-set-reader.ts';
import type { AttemptRow } from '../store/repositories/episodes.ts';
import type { Store } from '../store/store.ts';

type Methods = 'windows.list' | 'windows.episode' | 'windows.text';

export interface WindowParts {
  readonly store: Store;
  readonly vocabulary: Pick<SharedVocabulary<GenerationTarget>, 'use'>;
}

interface CycleWish {
  readonly name: string;
  readonly cycle?: number | undefined;
}

/** What will be trained, to be read by a person: the same files that the trainer reads. */
export const windowHandlers = ({ store, vocabulary }: WindowParts): Pick<EngineHandlers, Methods> => ({
  'windows.list': async (wish) => {
    const set = requireSet(store, wish);
    return setSummary(store, set, await readManifest(set));
  },
  'windows.episode': async ({ episode, ...wish }) => {
    const set = requireSet(store, wish);
    const manifest = await readManifest(set);
    const found = requireEpisode(setSummary(store, set, manifest), episode);
    return episodeWindows(store, set, { found, records: await recordsOf(set, found.episodeId) });
  },
  'windows.text': async ({ episodeId, index, ...wish }) => {
    const set = requireSet(store, wish);
    const record = (await recordsOf(set, episodeId)).find((candidate) => candidate.index === index);
    if (!record) throw new MassError('not_found', `Episode ${episodeId} has no window ${index}.`);
    const ids = await idsOf(set, record);
    const target = serveTarget(set.experiment, generationOfCycle(store, set.experiment, set.cycle));
    const pieces = record.blocks.map(({ start, end }) => ids.slice(start, end));
    const texts = await vocabulary.use(target, (open) => open.spell(pieces));
    return { index, blocks: record.blocks.map((block, i) => ({ ...block, text: texts[i] ?? '' })) };
  },
});

interface FoundSet extends PlacedWindowSet {
  readonly experiment: Experiment;
  readonly cycle: number;
  readonly windowSetId: string;
}

/** Errors: `not_found` naming the command that renders. */
function requireSet(store: Store, { name, cycle }: CycleWish): FoundSet {
  const experiment = requireExperiment(store, name);
  const { experimentId } = experiment;
  // Cycle k is played by L(k-1), so there are no more cycles than generations.
  const played = store.experiments.generations(experimentId).map((_, i) => i + 1);
  const sets = played.flatMap((number) => store.windowSets.ofCycle({ experimentId, cycle: number }) ?? []);
  const row = cycle === undefined ? sets.at(-1) : sets.find((set) => set.cycle === cycle);
  if (!row)
    throw new MassError(
      'not_found',
      `${cycle === undefined ? 'Nothing' : `Cycle ${cycle}`} of "${name}" ${cycle === undefined ? 'is' : 'is not'} rendered yet; run: mass render ${name}`,
    );
  const { windowSetId, manifestHash } = row;
  return { experiment, cycle: row.cycle, windowSetId, manifestHash, folder: join(store.folder, row.folder) };
}

function setSummary(store: Store, set: FoundSet, manifest: WindowManifest): WindowSetSummary {
  const { experiment, cycle, windowSetId, folder } = set;
  const { windowTokens, overlapTokens, total, leftOut } = manifest;
  const entries = store.tournaments.entries({ experimentId: experiment.experimentId, cycle });
  const episodes = manifest.episodes.map((episode) => ({
    ...episode,
    run: (store.episodes.byId(episode.episodeId)?.replicate ?? 0) + 1,
    rank: entries.find((entry) => entry.episodeId === episode.episodeId)?.rank ?? 0,
  }));
  return { windowSetId, cycle, folder, windowTokens, overlapTokens, total, leftOut, episodes };
}

function requireEpisode({ episodes }: WindowSetSummary, wanted: string): RenderedEpisode {
  const nameOf = ({ taskId, run }: RenderedEpisode): string => `${taskId}/${run}`;
  const found = episodes.find((episode) => episode.episodeId === wanted || nameOf(episode) === wanted);
  if (found) return found;
  throw new MassError(
    'not_found',
    `No rendered episode is called "${wanted}"; there are: ${episodes.map(nameOf).join(', ')}.`,
  );
}

function episodeWindows(
  store: Store,
  { experiment, windowSetId, cycle }: FoundSet,
  { found, records }: { found: RenderedEpisode; records: readonly WindowRecord[] },
): EpisodeWindows {
  const attempt = store.episodes.settledAttempt(found.episodeId);
  if (!attempt) throw new MassError('internal', `The rendered episode ${found.episodeId} is not settled.`);
  const barePrompt = barePromptOf(store, experiment.experimentId, found.taskId);
  const { ngram } = found.workflowOverlap;
  const block = workflowOf(store, attempt, barePrompt);
  const windows = records.map((record) => {
    const counter = new WorkflowOverlapCounter({ block, barePrompt, ngram });
    counter.trained(trainedTexts(store, record));
    const thread = store.threads.byId(record.threadId)?.name ?? record.role;
    return { ...record, thread, survivors: counter.passages() };
  });
  return { ...found, windowSetId, cycle, removed: removedText(store, attempt, barePrompt), windows };
}

const trainedTexts = (store: Store, { blocks }: WindowRecord): string[] =>
  blocks.flatMap(({ part, completionId }) => {
    const row = part === 'loss' ? store.threads.completionById(completionId ?? '') : undefined;
    return row === undefined ? [] : spokenTexts(store.artifacts.json(row.answerHash) as AssistantMessage);
  });

/** A teacher prompt begins with the bare prompt, byte for byte. */
function removedText(store: Store, { promptHash }: AttemptRow, barePrompt: string): string {
  const prompt = store.artifacts.text(promptHash);
  return prompt.startsWith(barePrompt) ? prompt.slice(barePrompt.length) : prompt;
}
