import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { readEngineFile } from '../client/connect-engine.ts';
import { findingsConfig } from '../engine/testing/scripted-findings.ts';
import { writeTaskLibrary } from '../engine/testing/scripted-world.ts';
import { projectRoot } from '../node/project-root.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-cli-export-'));
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
  await mass('stop', '--now', '--engine');
  await expect.poll(() => readEngineFile(join(folder, 'data')), { timeout: 10_000 }).toBeNull();
  await vi.waitFor(() => rmSync(folder, { recursive: true, force: true }), { timeout: 10_000 });
});

/** The command line over an engine with a scripted model and trainer. */
function mass(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  return new Promise((resolve, reject) => {
    const launch = [join(projectRoot, 'main/cli/launch.mjs'), ...args, '--data', join(folder, 'data')];
    const env = { ...process.env, MASS_ENGINE_ENTRY: join(projectRoot, 'main/engine/testing/findings-main.ts') };
    const child = spawn(process.execPath, launch, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => {
      out += String(data);
    });
    child.stderr.on('data', (data) => {
      err += String(data);
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, out, err }));
  });
}

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
