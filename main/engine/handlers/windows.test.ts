import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import type { AssistantMessage } from '../../common/domain/chat.ts';
import type { StageName } from '../../common/domain/events.ts';
import { createEngine, type Engine } from '../engine.ts';
import { openStore } from '../store/store.ts';
import { scriptedTeam } from '../testing/scripted-team.ts';
import { registerScriptedModel, scriptedConfig, scriptedWorld, writeTaskLibrary } from '../testing/scripted-world.ts';

const context = { signal: new AbortController().signal, progress: () => undefined };
const beforeRender: StageName[] = ['search', 'collect', 'rank', 'select'];

let folder: string;
let library: string;
let engine: Engine;
/** Vocabularies that are open now, and how many were opened. */
let vocabularies: { open: number; opened: number };
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mass-windows-'));
  library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-windows-tasks-')));
  const store = openStore(folder);
  registerScriptedModel(store);
  store.close();
  vocabularies = { open: 0, opened: 0 };
  // The orchestrator's last words repeat the workflow of `writeTaskLibrary`: "Write at LEVEL-1."
  const world = scriptedWorld({
    answer: (owner, request) => {
      const answer = scriptedTeam(owner, request) as AssistantMessage;
      const last = owner.startsWith('attempt:') && (answer.toolCalls ?? []).length === 0;
      return last ? { ...answer, content: 'I did WRITE at level 1, as told.' } : answer;
    },
  });
  const openVocabulary: typeof world.openVocabulary = async (...args) => {
    const vocabulary = await world.openVocabulary(...args);
    vocabularies.open++;
    vocabularies.opened++;
    return { ...vocabulary, dispose: async () => void vocabularies.open-- };
  };
  engine = await createEngine({
    dataFolder: folder,
    version: 'test',
    logger: silentLogger,
    world: { ...world, openVocabulary },
  });
  const config = { ...scriptedConfig(library), search: { updates: 0, callTokens: 4000 }, render: { ngram: 3 } };
  await engine.handlers['experiment.create']({ name: 'cycle', config }, context);
});
afterEach(async () => {
  await engine.shutdown('now');
  rmSync(folder, { recursive: true });
  rmSync(library, { recursive: true });
});

async function run(stages: StageName[]): Promise<void> {
  const { runId } = await engine.handlers['run.start']({ name: 'cycle', stages }, context);
  expect(await engine.handlers['run.wait']({ runId }, context)).toMatchObject({ state: 'done' });
}
const list = () => engine.handlers['windows.list']({ name: 'cycle' }, context);
const episode = (wanted: string) => engine.handlers['windows.episode']({ name: 'cycle', episode: wanted }, context);
const text = (episodeId: string, index: number) =>
  engine.handlers['windows.text']({ name: 'cycle', episodeId, index }, context);

describe('windows, for a person', () => {
  it('are those that the trainer reads, with the removed workflow and what is still said of it', async () => {
    await run([...beforeRender, 'render']);
    const set = await list();
    expect(set).toMatchObject({ cycle: 1, total: { windows: 6 } });
    expect(set.episodes.map(({ taskId, split }) => [taskId, split])).toEqual([
      ['one', 'train'],
      ['one', 'train'],
      ['one', 'validate'],
      ['two', 'train'],
      ['two', 'train'],
      ['two', 'validate'],
    ]);
    expect(set.episodes.map(({ rank }) => rank)).toEqual([1, 2, 3, 1, 2, 3]);
    const [first] = set.episodes;
    const shown = await episode(`one/${first?.run}`);
    expect(shown).toEqual(await episode(first?.episodeId ?? ''));
    expect(shown.removed).toMatch(/^\n<<< TEAM WORKFLOW\n.*LEVEL-1.*TEAM WORKFLOW >>>\n/s);
    // "write at level" and "at level 1" are the runs of three words in "Write at LEVEL-1."
    expect(shown.windows.map(({ thread, survivors }) => [thread, survivors])).toEqual([
      ['orchestrator', ['write at level 1']],
    ]);
    expect(shown.workflowOverlap).toMatchObject({ ngram: 3, shared: 2 });
    const { blocks } = await text(shown.episodeId, shown.windows[0]?.index ?? -1);
    expect(blocks.map(({ start, end, part, completionId }) => ({ start, end, part, completionId }))).toEqual(
      shown.windows[0]?.blocks,
    );
    expect(blocks[0]?.text).toContain('user: Write report.md about task one.\n\n');
    expect(blocks.at(-1)).toMatchObject({ part: 'loss', text: 'I did WRITE at level 1, as told.\n' });
  });

  it('open one vocabulary for many windows and leave none open', async () => {
    await run([...beforeRender, 'render']);
    const before = vocabularies.opened;
    const { episodes } = await list();
    for (const { episodeId } of episodes) {
      for (const { index } of (await episode(episodeId)).windows) await text(episodeId, index);
    }
    expect(vocabularies).toEqual({ open: 1, opened: before + 1 });
    await engine.shutdown('now');
    expect(vocabularies.open).toBe(0);
  });

  it('are not there before they are rendered, nor for an episode that was not', async () => {
    await expect(list()).rejects.toMatchObject({
      code: 'not_found',
      message: 'Nothing of "cycle" is rendered yet; run: mass render cycle',
    });
    await run([...beforeRender, 'render']);
    await expect(episode('one/9')).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringMatching(/^No rendered episode is called "one\/9"; there are: one\/\d, one\/\d/) as string,
    });
    await expect(engine.handlers['windows.list']({ name: 'cycle', cycle: 2 }, context)).rejects.toMatchObject({
      message: 'Cycle 2 of "cycle" is not rendered yet; run: mass render cycle',
    });
  });

  it('are refused when the files are not those that were rendered', async () => {
    await run([...beforeRender, 'render']);
    const { folder: place, episodes } = await list();
    const episodeId = episodes[0]?.episodeId ?? '';
    appendFileSync(join(place, 'windows.jsonl'), '\n');
    await expect(episode(episodeId)).rejects.toMatchObject({ code: 'conflict' });
    rmSync(place, { recursive: true });
    await expect(episode(episodeId)).rejects.toMatchObject({ code: 'not_found' });
  });
});
