import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { findingsConfig } from '../engine/testing/scripted-findings.ts';
import { writeTaskLibrary } from '../engine/testing/scripted-world.ts';
import { CommandLine, scriptedEngine } from './testing/command-line.ts';

let folder: string;
let line: CommandLine;
/** The command line over an engine with a scripted model and trainer. */
const mass = (...args: string[]) => line.mass(...args);
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-cli-export-'));
  line = new CommandLine(join(folder, 'data'), scriptedEngine);
  const library = writeTaskLibrary(join(folder, 'tasks'));
  const config = {
    ...findingsConfig(library),
    tasks: { library, train: ['one'], test: [] },
    search: { updates: 0, callTokens: 4000, requireProvenWin: false },
    gates: { beforeTrain: false, beforeRegister: false, onFindings: false },
    integrity: { quarantine: false },
    train: { rank: 4, steps: 6, checkpointEvery: 2, validateEvery: 2 },
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
});
afterEach(async () => {
  await line.end();
  await vi.waitFor(() => rmSync(folder, { recursive: true, force: true }), { timeout: 10_000 });
});

it('exports the checkpoint a person names, and then a second cycle on it', { timeout: 180_000 }, async () => {
  expect(await mass('new', 'x', '--config', join(folder, 'config.json'))).toMatchObject({ code: 0 });
  expect(await mass('export', 'x')).toMatchObject({
    code: 2,
    out: 'Run failed. Cycle 1 of "x" is not trained yet; run: mass train x\n',
  });
  expect(await mass('run', 'x', '--until', 'train')).toMatchObject({ code: 0 });
  expect((await mass('export', 'x', '--checkpoint', '3')).err).toMatch(/no checkpoint of step 3; there are: 2, 4, 6/);

  const exported = await mass('export', 'x', '--checkpoint', '4', '--note', 'the last one overfits');
  expect(exported.code).toBe(0);
  expect(exported.out).toMatch(/^Run done\./);
  expect(exported.out).toMatch(/^4 +1\.2000 +.* chosen by a person: the last one overfits$/m);
  expect(exported.out).toMatch(/^parity +passed over 32 positions of 2 prompts$/m);
  expect(exported.out).toMatch(/^L1 +registered; its card is generations\/x-L1\/README\.md in the data folder$/m);
  expect(existsSync(join(folder, 'data/generations/x-L1/README.md'))).toBe(true);
  const again = await mass('export', 'x', '--checkpoint', '6');
  expect([again.code, again.err]).toEqual([
    1,
    'L1 of "x" is registered and never changes; for another checkpoint create a new experiment.\n',
  ]);

  expect(await mass('run', 'x', '--cycles', '2')).toMatchObject({ code: 0 });
  const second = JSON.parse((await mass('export', 'x', '--cycle', '2', '--json')).out);
  expect(second).toMatchObject({
    run: { state: 'done' },
    export: { cycle: 2, adapter: { rank: 8 }, generation: { number: 2 } },
  });
});

it.each([
  [['--merge'], /Name the folder to merge into/],
  [['--out', 'somewhere'], /belong to a merged model: add --merge/],
  [['--merge', '--out', 'somewhere', '--checkpoint', '2'], /belongs to an export without --merge/],
  [['--note', 'why'], /A note belongs to a choice/],
  [['--merge', '--out', 'somewhere', '--type', 'q2'], /q2/],
])('refuses %j', async (args, message) => {
  const { code, err } = await mass('export', 'x', ...args);
  expect([code, message.test(err)]).toEqual([2, true]);
});
