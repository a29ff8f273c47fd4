import { join } from 'node:path';
import { cancelled, MassError } from '../../common/base/errors.ts';
import type { WindowManifest } from '../../common/domain/window-set.ts';
import { WorkflowOverlapCounter } from '../../common/domain/word-overlap.ts';
import { findBlock } from '../../common/domain/workflow-block.ts';
import { canonicalJson, sha256 } from '../../node/hashing.ts';
import type { Vocabulary } from '../endpoints/vocabulary.ts';
import type { Stage, StageContext } from '../runner/stage.ts';
import type { AttemptRow } from '../store/repositories/episodes.ts';
import type { SelectionEntryRow } from '../store/repositories/tournaments.ts';
import type { Store } from '../store/store.ts';
import { renderEpisode } from './render-episode.ts';
import { requireSettled } from './run-episode.ts';
import type { CycleServices } from './services.ts';
import { suppliesData } from './tournament.ts';
import { holdsWindowSet, WindowSetWriter } from './window-set-writer.ts';

type EpisodeCounts = WindowManifest['episodes'][number];
type Entry = SelectionEntryRow & { readonly decision: 'train' | 'validate' };

/**
 * Turns the selected runs of a cycle into one window set (common/domain/window-set.ts). The set's id follows from what it
 * is made of, so rendering again finds the finished set, and a try that was interrupted is begun anew. One episode is held
 * at a time. Test tasks were never collected, so none can be here.
 *
 * Errors: `usage` while a task is not selected; those of `renderEpisode`, which stop the stage.
 */
export function renderStage(services: CycleServices): Stage {
  return {
    name: 'render',
    run: async (context) => {
      const waiting = notSelected(services, context);
      if (waiting.length > 0) {
        const message = `Rendering needs the selection of every task; not selected yet: ${waiting.join(', ')}.`;
        if (context.tasks === null) throw new MassError('usage', `${message} Run: mass select`);
        return { complete: false, message };
      }
      const windowSetId = windowSetIdOf(services, context);
      const known = services.store.windowSets.ofCycle(context);
      const there =
        known?.windowSetId === windowSetId &&
        (await holdsWindowSet(join(services.dataFolder, known.folder), known.manifestHash));
      if (there) return { complete: true, message: sizes(known) };
      if (context.draining()) return { complete: false, message: '' };
      return { complete: true, message: sizes(await renderSet(services, context, windowSetId)) };
    },
  };
}

function notSelected(services: CycleServices, context: StageContext): string[] {
  const { store } = services;
  const { experimentId, cycle } = context;
  return store.tasks
    .of(experimentId)
    .filter((row) => row.split === 'train' && suppliesData(services, context, row.taskId))
    .map((row) => row.taskId)
    .filter((taskId) => !store.tournaments.selection({ experimentId, cycle, taskId }));
}

const count = (value: number): string => value.toLocaleString('en-US');
const sizes = ({ windows, tokens, labelledTokens }: WindowManifest['total']): string =>
  `${count(windows)} windows, ${count(labelledTokens)} of ${count(tokens)} tokens trained`;

/** Everything the set depends on besides the recorded episodes, which never change. */
export function windowSetIdOf(services: CycleServices, context: StageContext): string {
  const { experimentId, cycle, config } = context;
  const { modelSha256, adapterSha256 } = services.generation;
  const key = { experimentId, cycle, render: config.render, modelSha256, adapterSha256 };
  return `ws_${sha256(canonicalJson({ ...key, entries: entriesOf(services, context), format: 1 })).slice(0, 12)}`;
}

const entriesOf = ({ store }: CycleServices, { experimentId, cycle }: StageContext): Entry[] =>
  store.tournaments.entries({ experimentId, cycle }).filter((entry): entry is Entry => entry.decision !== 'drop');

async function renderSet(
  services: CycleServices,
  context: StageContext,
  windowSetId: string,
): Promise<WindowManifest['total']> {
  const { store, dataFolder, generation } = services;
  const { experimentId, cycle, config } = context;
  const { modelSha256, adapterSha256 } = generation;
  const entries = entriesOf(services, context);
  if (entries.length === 0)
    throw new MassError('usage', 'No task supplies data to this cycle, so there is nothing to render.');
  const folder = join('windows', windowSetId);
  const vocabulary = await services.openVocabulary();
  try {
    const writer = await WindowSetWriter.open(join(dataFolder, folder));
    try {
      const episodes: EpisodeCounts[] = [];
      for (const [i, entry] of entries.entries()) {
        context.doing(`render: episode ${i + 1} of ${entries.length} (${entry.taskId})`);
        episodes.push(await renderEntry(services, context, { entry, vocabulary, writer }));
      }
      const { manifest, text } = await writer.finish((summary) => ({
        format: 1,
        windowTokens: config.render.windowTokens,
        overlapTokens: config.render.overlapTokens,
        modelSha256,
        adapterSha256,
        vocabularySha256: vocabulary.status.sha256,
        ...summary,
        episodes,
      }));
      const manifestHash = store.artifacts.put(text);
      const { total } = manifest;
      store.append({
        type: 'windows.rendered',
        windowSetId,
        experimentId,
        cycle,
        folder,
        manifestHash,
        modelSha256,
        ...total,
      });
      return total;
    } finally {
      await writer.discard();
    }
  } finally {
    await vocabulary.dispose();
  }
}

interface EntryInput {
  readonly entry: Entry;
  readonly vocabulary: Vocabulary;
  readonly writer: WindowSetWriter;
}

async function renderEntry(
  services: CycleServices,
  context: StageContext,
  { entry, vocabulary, writer }: EntryInput,
): Promise<EpisodeCounts> {
  const { store, generation } = services;
  const { windowTokens, overlapTokens, ngram } = context.config.render;
  const { episodeId, taskId, decision: split } = entry;
  const attempt = requireSettled(services, episodeId);
  const barePrompt = barePromptOf(store, context.experimentId, taskId);
  const overlap = new WorkflowOverlapCounter({ block: workflowOf(store, attempt, barePrompt), barePrompt, ngram });
  const counts = { windows: 0, tokens: 0, labelledTokens: 0 };
  const rendered = renderEpisode({
    store,
    vocabulary,
    attempt,
    barePrompt,
    served: generation,
    limits: { windowTokens, overlapTokens },
    onTrained: (texts) => overlap.trained(texts),
  });
  for await (const { role, threadId, window } of rendered) {
    if (context.signal.aborted) throw cancelled();
    await writer.add({ split, taskId, role, episodeId, threadId }, window);
    counts.windows++;
    counts.tokens += window.ids.length;
    counts.labelledTokens += window.labelledTokens;
  }
  return { episodeId, taskId, split, counts, workflowOverlap: overlap.result() };
}

/** A task's prompt as it was when the experiment was created. */
export function barePromptOf(store: Store, experimentId: string, taskId: string): string {
  const row = store.tasks.of(experimentId).find((task) => task.taskId === taskId);
  if (!row) throw new MassError('internal', `The selected task "${taskId}" is not one of the experiment's.`);
  return store.artifacts.text(row.promptHash);
}

/** The workflow text of the prompt an attempt was given; "" for a bare one. */
export function workflowOf(store: Store, attempt: AttemptRow, barePrompt: string): string {
  const prompt = store.artifacts.text(attempt.promptHash);
  return prompt === barePrompt ? '' : findBlock(prompt).block;
}
