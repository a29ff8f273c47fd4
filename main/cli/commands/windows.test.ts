import { expect, it } from 'vitest';
import type { AttachedEngine } from '../../client/connect-engine.ts';
import type { CommandContext } from '../command-context.ts';
import { silentReporter } from '../render/reporter.ts';
import { inspectWindows } from './windows.ts';

const block = { start: 2, end: 5, part: 'loss', completionId: 'c1' } as const;
const header = { start: 0, end: 2, part: 'header', completionId: null, text: 'H\n' } as const;
const window = (index: number) => ({
  index,
  offset: 5 * index,
  length: 5,
  split: 'train',
  taskId: 'one',
  role: 'orchestrator',
  episodeId: 'ep_1',
  threadId: 'at_1:t0',
  blocks: [block],
  labelledTokens: 3,
  thread: 'orchestrator',
  survivors: [],
});
const episode = {
  episodeId: 'ep_1',
  taskId: 'one',
  run: 1,
  rank: 1,
  split: 'train',
  counts: { windows: 2, tokens: 10, labelledTokens: 10 },
  workflowOverlap: { ngram: 8, shared: 0, ofWorkflow: 3, share: 0 },
  windowSetId: 'ws_1',
  cycle: 2,
  removed: 'PLAN',
  windows: [window(40), window(41)],
};

/** An engine that has one episode of two windows; tells what it was asked. */
function setUp(json: boolean) {
  const printed: string[] = [];
  const asked: unknown[] = [];
  const call = async (method: string, params: { index?: number }) => {
    asked.push([method, params]);
    const { index } = params;
    return method === 'windows.episode' ? episode : { index, blocks: [header, { ...block, text: `W${index}` }] };
  };
  const context: CommandContext = {
    dataFolder: '/nowhere',
    json,
    reporter: silentReporter,
    interrupted: new AbortController().signal,
    connect: async () => ({ call, close: () => undefined }) as unknown as AttachedEngine,
    print: (text) => void printed.push(text),
  };
  return { context, printed, asked };
}

it('prints each window as it comes, in order', async () => {
  const { context, printed, asked } = setUp(false);
  expect(await inspectWindows(context, { name: 'first', episode: 'one/1' })).toBeNull();
  expect(printed).toHaveLength(3);
  expect(printed[0]).toContain('- PLAN');
  expect(printed[1]).toMatch(/^\n=== window 1 of 2: orchestrator, .*\n.*\n\| H\n\+ W40$/);
  expect(printed[2]).toMatch(
    /^\n=== window 2 of 2: orchestrator, .*\n.*\n\| \(the header of window 1 again, word for word\)\n\+ W41$/,
  );
  expect(asked).toEqual([
    ['windows.episode', { name: 'first', episode: 'one/1' }],
    ['windows.text', { name: 'first', cycle: 2, episodeId: 'ep_1', index: 40 }],
    ['windows.text', { name: 'first', cycle: 2, episodeId: 'ep_1', index: 41 }],
  ]);
});

it('gives everything as one value with --json', async () => {
  const { context, printed } = setUp(true);
  const result = await inspectWindows(context, { name: 'first', episode: 'one/1' });
  expect(printed).toEqual([]);
  expect(result?.value).toEqual({
    ...episode,
    windows: [40, 41].map((index) => ({ ...window(index), blocks: [header, { ...block, text: `W${index}` }] })),
  });
});
