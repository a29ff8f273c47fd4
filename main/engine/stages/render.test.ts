import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import type { AssistantMessage } from '../../common/domain/chat.ts';
import type { ExperimentConfigInput } from '../../common/domain/config.ts';
import type { StageName } from '../../common/domain/events.ts';
import type { ScriptedEndpointOptions } from '../endpoints/scripted-endpoint.ts';
import { createScriptedVocabulary } from '../endpoints/scripted-vocabulary.ts';
import { createEngine } from '../engine.ts';
import type { Store } from '../store/store.ts';
import { useLabFolder } from '../testing/lab-folder.ts';
import { type ReadWindow, readWindowSet } from '../testing/read-window-set.ts';
import { scriptedTeam } from '../testing/scripted-team.ts';
import { registerScriptedModel, scriptedConfig, scriptedWorld } from '../testing/scripted-world.ts';
import type { RunWorld } from '../world.ts';

const lab = useLabFolder();
const { withStore } = lab;
const context = { signal: new AbortController().signal, progress: () => undefined };
const allStages: StageName[] = ['search', 'collect', 'rank', 'select', 'render'];

/** The team of `scriptedTeam`, whose orchestrator has a worker check the report and then repeats the workflow's words. */
const delegating: ScriptedEndpointOptions['answer'] = (owner, request) => {
  const { messages } = request;
  const call = (id: string, name: string, args: Record<string, string>): AssistantMessage => ({
    role: 'assistant',
    content: '',
    reasoning: `I use ${name}.`,
    toolCalls: [{ id, name, arguments: JSON.stringify(args) }],
  });
  if (!owner.startsWith('attempt:')) return scriptedTeam(owner, request);
  if (!(request.tools ?? []).some((tool) => tool.name === 'delegate')) {
    return messages.length > 2
      ? { role: 'assistant', content: 'Checked.' }
      : call('w1', 'read_file', { path: 'report.md' });
  }
  const results = messages.filter((message) => message.role === 'tool').length;
  if (results === 0) return scriptedTeam(owner, request);
  return results === 1
    ? call('c2', 'delegate', { role: 'checker', assignment: 'Read report.md; the end marker is TEAM WORKFLOW.' })
    : { role: 'assistant', content: 'The report is written and was checked.' };
};

async function run(
  options: { stages?: StageName[]; tasks?: string[]; config?: Partial<ExperimentConfigInput>; world?: RunWorld } = {},
) {
  const world = options.world ?? scriptedWorld({ answer: delegating });
  const engine = await createEngine({ dataFolder: lab.folder, version: 'test', logger: silentLogger, world });
  try {
    const quick = { search: { updates: 0, callTokens: 4000 } };
    const config = { ...scriptedConfig(lab.library), ...quick, ...options.config };
    await engine.handlers['experiment.create']({ name: 'cycle', config }, context);
    const { stages = allStages, tasks } = options;
    const order = { name: 'cycle', stages, ...(tasks === undefined ? {} : { tasks }) };
    const { runId } = await engine.handlers['run.start'](order, context);
    return await engine.handlers['run.wait']({ runId }, context);
  } finally {
    await engine.shutdown('now');
  }
}

const setOf = (store: Store) => {
  const experimentId = store.experiments.byName('cycle')?.experimentId ?? '';
  const row = store.windowSets.ofCycle({ experimentId, cycle: 1 });
  if (!row) throw new Error('Nothing was rendered.');
  return { row, ...readWindowSet(join(lab.folder, row.folder)) };
};

const text = ({ ids }: ReadWindow, { start, end }: { start: number; end: number }): string =>
  Buffer.from(ids.slice(start, end)).toString('utf8');
const blocks = (window: ReadWindow) => window.blocks.map((block) => [block.part, text(window, block)]);

describe('the render stage', () => {
  it('writes the selected runs as windows with the bare prompt in place of the workflow', async () => {
    expect(await run()).toMatchObject({ state: 'done' });
    withStore((store) => {
      const { row, manifest, windows } = setOf(store);
      expect(manifest.episodes.map(({ taskId, split }) => [taskId, split])).toEqual([
        ['one', 'train'],
        ['one', 'train'],
        ['one', 'validate'],
        ['two', 'train'],
        ['two', 'train'],
        ['two', 'validate'],
      ]);
      // An orchestrator and a worker for each of the six runs, each conversation short enough for one window.
      expect(windows.map((window) => window.role)).toEqual(Array(6).fill(['orchestrator', 'subagent']).flat());
      expect(manifest.total.windows).toBe(12);
      expect(row).toMatchObject(manifest.total);
      expect(manifest.bySplit.train.windows + manifest.bySplit.validate.windows).toBe(12);
      const [orchestrator, worker] = windows as [ReadWindow, ReadWindow];
      expect(blocks(orchestrator)).toEqual([
        ['header', expect.stringMatching(/^delegate .*\nsystem: .*\nuser: Write report\.md about task one\.\n\n$/s)],
        ['context', 'assistant: '],
        ['loss', expect.stringMatching(/^\ncall write_file \{"path":"report.md","content":"# Report.*\}\n$/)],
        ['context', expect.stringMatching(/^tool: /)],
        ['context', 'assistant: '],
        ['loss', expect.stringMatching(/^\(I use delegate\.\) \ncall delegate /)],
        ['context', 'tool: Checked.\n'],
        ['context', 'assistant: '],
        ['loss', 'The report is written and was checked.\n'],
      ]);
      expect(blocks(worker).map(([part]) => part)).toEqual(['header', 'context', 'loss', 'context', 'context', 'loss']);
      expect(blocks(worker)[0]?.[1]).toContain(
        'user: Role: checker\n\nRead report.md; the end marker is TEAM WORKFLOW.',
      );
    });
  });

  it('trains every completion of the selected runs once, with its own ids and nothing else', async () => {
    await run();
    withStore((store) => {
      const { manifest, windows } = setOf(store);
      const loss = windows.flatMap((window) =>
        window.blocks.filter((block) => block.part === 'loss').map((block) => ({ window, block })),
      );
      const expected = manifest.episodes.flatMap(({ episodeId }) => {
        const attempt = store.episodes.settledAttempt(episodeId);
        return store.threads.completionsOfOwner('attempt', attempt?.attemptId ?? '');
      });
      expect(loss.map(({ block }) => block.completionId).sort()).toEqual(
        expected.map((row) => row.completionId).sort(),
      );
      for (const { window, block } of loss) {
        const row = store.threads.completionById(block.completionId ?? '');
        expect(window.ids.slice(block.start, block.end)).toEqual(store.artifacts.ids(row?.sampledHash ?? ''));
        expect(row?.threadId).toBe(window.threadId);
      }
      expect(manifest.total.labelledTokens).toBe(expected.reduce((sum, row) => sum + row.completionTokens, 0));
      for (const window of windows) expect(text(window, { start: 0, end: window.length })).not.toContain('LEVEL-');
    });
  });

  it('cuts a conversation that is longer than a window, and repeats its header', async () => {
    await run();
    const [whole] = withStore((store) => setOf(store).windows) as [ReadWindow];
    const last = whole.blocks.at(-1);
    rmSync(lab.folder, { recursive: true });
    withStore(registerScriptedModel);
    const overlapTokens = 30; // "tool: Checked.\n" and "assistant: " have 26 bytes; the call before them has more
    const config = { render: { windowTokens: whole.length - 1, overlapTokens } };
    expect(await run({ config })).toMatchObject({ state: 'done' });
    withStore((store) => {
      const { windows } = setOf(store);
      const [first, second] = windows.filter((window) => window.threadId === windows[0]?.threadId) as [
        ReadWindow,
        ReadWindow,
      ];
      expect(blocks(first)).toEqual(blocks(whole).slice(0, -3));
      expect(blocks(second)).toEqual([blocks(whole)[0], ...blocks(whole).slice(-3)]);
      expect(second.labelledTokens).toBe((last?.end ?? 0) - (last?.start ?? 0));
    });
  });

  it('finds a finished set again, and renders one anew whose folder is gone', async () => {
    await run();
    const first = withStore((store) => ({ ...setOf(store), seq: store.lastSeq() }));
    const renderedSince = (seq: number) =>
      withStore(
        (store) => store.eventsSince(seq, 1000).filter(({ event }) => event.type === 'windows.rendered').length,
      );
    expect(await run({ stages: ['render'] })).toMatchObject({ state: 'done' });
    expect(renderedSince(first.seq)).toBe(0);
    rmSync(join(lab.folder, first.row.folder), { recursive: true });
    writeFileSync(join(lab.folder, 'windows', `${first.row.windowSetId}.left`), '');
    expect(await run({ stages: ['render'] })).toMatchObject({ state: 'done' });
    expect(renderedSince(first.seq)).toBe(1);
    const again = withStore(setOf);
    expect([again.row.windowSetId, again.manifest]).toEqual([first.row.windowSetId, first.manifest]);
  });

  it('leaves nothing in place and nothing recorded when it ends halfway, and begins anew', async () => {
    let episodes = 0;
    const world: RunWorld = {
      ...scriptedWorld({ answer: delegating }),
      openVocabulary: async () => {
        const vocabulary = createScriptedVocabulary();
        const forget = () => (++episodes === 3 ? Promise.reject(new Error('lost')) : Promise.resolve());
        const learn: typeof vocabulary.learn = (request) =>
          episodes === 2 ? Promise.reject(new Error('the process ended')) : vocabulary.learn(request);
        return { ...vocabulary, learn, forget };
      },
    };
    expect(await run({ world })).toMatchObject({ state: 'failed', message: 'the process ended' });
    expect(readdirSync(join(lab.folder, 'windows'))).toEqual([]);
    expect(
      withStore((store) =>
        store.windowSets.ofCycle({ experimentId: store.experiments.byName('cycle')?.experimentId ?? '', cycle: 1 }),
      ),
    ).toBeUndefined();
    expect(await run({ stages: ['render'] })).toMatchObject({ state: 'done' });
    expect(withStore((store) => setOf(store).manifest.episodes)).toHaveLength(6);
  });

  it('waits for tasks that a partial run left out, and says so when asked for all', async () => {
    expect(await run({ tasks: ['one'] })).toMatchObject({ state: 'stopped' });
    expect(await run({ stages: ['render'] })).toMatchObject({
      state: 'failed',
      message: 'Rendering needs the selection of every task; not selected yet: two. Run: mass select',
    });
  });

  it('measures how much of the workflow is still said', async () => {
    const repeat = 'write the report in small steps and check each number against the data before the end';
    const agents = [{ agent_id: 'writer', role: 'writer', instruction: `LEVEL-1 ${repeat}`, contract: 'report.md' }];
    for (const id of ['one', 'two', 'three'])
      writeFileSync(join(lab.library, id, 'workflow.json'), JSON.stringify({ agents, hops: [] }));
    const world = scriptedWorld({
      answer: (owner, request) => {
        const answer = delegating(owner, request) as AssistantMessage;
        return answer.content.startsWith('The report is written')
          ? { ...answer, content: `We did ${repeat}.` }
          : answer;
      },
    });
    await run({ world, config: { render: { ngram: 8 } } });
    // 16 words make 9 runs of 8, and "LEVEL 1" before them 2 more, which nobody said.
    const overlap = withStore((store) => setOf(store).manifest.episodes.map((episode) => episode.workflowOverlap));
    expect(overlap).toEqual(Array(6).fill({ ngram: 8, shared: 9, ofWorkflow: 11, share: 9 / 11 }));
  });
});

describe('what stops the render stage', () => {
  const failing = async (world: RunWorld, config: Partial<ExperimentConfigInput> = {}) => {
    const one = { tasks: { library: lab.library, train: ['one'], test: [] } };
    const end = await run({ world, config: { ...one, ...config } });
    expect(end.state).toBe('failed');
    return end.error as { code: string; message: string; details: Record<string, unknown> };
  };
  const tampering = (change: (vocabulary: ReturnType<typeof createScriptedVocabulary>) => object): RunWorld => ({
    ...scriptedWorld({ answer: delegating }),
    openVocabulary: async () => {
      const vocabulary = createScriptedVocabulary();
      return { ...vocabulary, ...change(vocabulary) };
    },
  });

  it('a header that takes more than nine tenths of the window', async () => {
    const error = await failing(scriptedWorld({ answer: delegating }), { render: { windowTokens: 500 } });
    expect(error).toMatchObject({ code: 'invalid_input', details: { reason: 'header_too_long', windowTokens: 500 } });
    expect(error.message).toMatch(/thread at_\w+:t0 of episode ep_\w+/);
  });

  it('an answer too long for any window', async () => {
    const world = scriptedWorld({
      answer: (owner, request) => {
        const answer = delegating(owner, request) as AssistantMessage;
        return owner.startsWith('attempt:') && answer.content !== ''
          ? { ...answer, content: 'x'.repeat(20_000) }
          : answer;
      },
    });
    const error = await failing(world, { render: { windowTokens: 15_000 } });
    expect(error).toMatchObject({ code: 'invalid_input', details: { reason: 'block_too_long' } });
  });

  it('tokens that spell another text than the message', async () => {
    const error = await failing(tampering(() => ({ learn: () => Promise.resolve([0]) })));
    expect(error).toMatchObject({
      details: { reason: 'other_text', episodeId: expect.stringMatching(/^ep_/) as string },
    });
  });

  it('a conversation that another template would render', async () => {
    const error = await failing(
      tampering((vocabulary) => ({
        render: async (request: Parameters<typeof vocabulary.render>[0]) => {
          const { ids, starts } = await vocabulary.render(request);
          return { ids: ids.map((id, i) => (i === 3 ? id + 1 : id)), starts };
        },
      })),
    );
    expect(error).toMatchObject({ details: { reason: 'other_rendering' } });
    expect(error.message).toContain('part at token 3');
  });

  it('a template without turns', async () => {
    const error = await failing(
      tampering((vocabulary) => ({
        render: async (request: Parameters<typeof vocabulary.render>[0]) => {
          const { ids, starts } = await vocabulary.render(request);
          return { ids, starts: starts.map(() => null) };
        },
      })),
    );
    expect(error).toMatchObject({ details: { reason: 'no_turns' } });
  });
});
