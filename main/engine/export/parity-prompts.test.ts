import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { WindowBlock } from '../../common/domain/window-set.ts';
import { WindowSetWriter } from '../stages/window-set-writer.ts';
import { parityPrompts } from './parity-prompts.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-prompts-'));
});
afterEach(() => rmSync(root, { recursive: true }));

interface Sketch {
  readonly split: 'train' | 'validate';
  /** [part, tokens]; ids are 1000 x window + position */
  readonly parts: readonly (readonly [WindowBlock['part'], number])[];
}

async function windowSet(sketches: readonly Sketch[]): Promise<string> {
  const folder = join(root, 'set');
  const writer = await WindowSetWriter.open(folder);
  for (const [window, { split, parts }] of sketches.entries()) {
    let at = 0;
    const blocks = parts.map(([part, tokens]) => {
      const block = { start: at, end: at + tokens, part, completionId: null };
      at += tokens;
      return block;
    });
    const ids = Uint32Array.from({ length: at }, (_, i) => 1000 * window + i);
    const meta = { split, taskId: 't', role: 'orchestrator', episodeId: 'ep', threadId: 'th' } as const;
    await writer.add(meta, { ids, blocks, labelledTokens: 1, leftOut: 0 });
  }
  const zero = '0'.repeat(64);
  await writer.finish((summary) => ({
    format: 1,
    windowTokens: 1000,
    overlapTokens: 0,
    modelSha256: zero,
    adapterSha256: null,
    vocabularySha256: zero,
    ...summary,
    episodes: [],
  }));
  return folder;
}

const limits = { count: 8, lastPositions: 4, longest: 100 };

it('ends where the last positions predict the beginning of a trained answer', async () => {
  const folder = await windowSet([
    {
      split: 'validate',
      parts: [
        ['header', 10],
        ['loss', 20],
        ['context', 5],
        ['loss', 3],
      ],
    },
  ]);
  const upTo = (length: number) => ({ window: 0, ids: Array.from({ length }, (_, i) => i) });
  // Positions 9 to 12 predict ids 10 to 13, the first four of the first answer; 33 to 36 all three of the second.
  expect(await parityPrompts(folder, limits)).toEqual([upTo(13), upTo(37)]);
});

it('takes validation windows, spread evenly, and training windows only when there are none', async () => {
  const window = (split: Sketch['split']): Sketch => ({
    split,
    parts: [
      ['header', 8],
      ['loss', 8],
    ],
  });
  const both = await windowSet([window('train'), ...Array.from({ length: 20 }, () => window('validate'))]);
  const prompts = await parityPrompts(both, { ...limits, count: 4 });
  expect(prompts.map((prompt) => prompt.window)).toEqual([1, 6, 11, 16]);
  expect(prompts[1]?.ids).toEqual(Array.from({ length: 11 }, (_, i) => 6000 + i));
  rmSync(both, { recursive: true });
  const only = await windowSet([window('train'), window('train')]);
  expect((await parityPrompts(only, limits)).map((prompt) => prompt.window)).toEqual([0, 1]);
});

it('cuts the beginning of what is too long, and never the scored end', async () => {
  const folder = await windowSet([
    {
      split: 'train',
      parts: [
        ['header', 300],
        ['loss', 300],
      ],
    },
  ]);
  const [prompt] = await parityPrompts(folder, { ...limits, longest: 50 });
  expect([prompt?.ids.length, prompt?.ids[0], prompt?.ids.at(-1)]).toEqual([50, 253, 302]);
});

it('stays within short answers and short windows, and says so when none will do', async () => {
  const short = await windowSet([
    {
      split: 'train',
      parts: [
        ['header', 9],
        ['loss', 2],
      ],
    },
    {
      split: 'train',
      parts: [
        ['header', 1],
        ['loss', 2],
      ],
    },
  ]);
  const prompts = await parityPrompts(short, limits);
  expect(prompts.map(({ window, ids }) => [window, ids.length])).toEqual([[0, 10]]);
  rmSync(short, { recursive: true });
  const none = await windowSet([{ split: 'train', parts: [['loss', 3]] }]);
  await expect(parityPrompts(none, limits)).rejects.toMatchObject({ code: 'invalid_input' });
});
