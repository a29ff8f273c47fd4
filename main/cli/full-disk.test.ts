import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { findingsConfig } from '../engine/testing/scripted-findings.ts';
import { writeTaskLibrary } from '../engine/testing/scripted-world.ts';
import { CommandLine, scriptedEngine } from './testing/command-line.ts';

/** A data folder on a small disk of its own, which takes root. */
const canMount = process.platform === 'linux' && process.getuid?.() === 0 && canMountHere();
let folder: string;
let line: CommandLine;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-full-disk-'));
  mkdirSync(join(folder, 'data'));
  line = new CommandLine(join(folder, 'data'), scriptedEngine);
});
afterEach(async () => {
  await line.end();
  await vi.waitFor(() => spawnSync('umount', [line.data]).status === 0 || Promise.reject(new Error('busy')), 10_000);
  rmSync(folder, { recursive: true, force: true });
});

function canMountHere(): boolean {
  const at = mkdtempSync(join(tmpdir(), 'mass-mount-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', 'tmpfs', at]).status === 0;
  if (mounted) spawnSync('umount', [at]);
  rmSync(at, { recursive: true });
  return mounted;
}

const sentence = 'The disk of the data folder is full or failing; free space, then run again.';
const freeBytes = (): number => {
  const { bavail, bsize } = statfsSync(line.data);
  return bavail * bsize;
};
/** Takes the room there is but for `keepBytes`, until `free`. */
const fill = (keepBytes: number): void =>
  appendFileSync(join(line.data, 'fill'), Buffer.alloc(Math.max(0, freeBytes() - keepBytes)));
const free = (): void => rmSync(join(line.data, 'fill'));

interface Logged {
  readonly type: string;
  readonly episodeId: string;
  readonly outcome: string;
}

/** Episodes that a run of the model settled, in order; twice when one was run twice. */
async function settledEpisodes(): Promise<string[]> {
  const lines = (await line.mass('log', 'x', '--all', '--json')).out.trimEnd().split('\n');
  return lines
    .map((text) => (JSON.parse(text) as { event: Logged }).event)
    .filter((event) => event.type === 'attempt.ended' && ['completed', 'halted'].includes(event.outcome))
    .map((event) => event.episodeId);
}

it.runIf(canMount)(
  'a disk that fills during a run fails it, says so, and loses nothing: with room again the run goes on',
  { timeout: 120_000 },
  async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', line.data]);
    const config = join(folder, 'config.json');
    const library = writeTaskLibrary(join(folder, 'tasks'));
    writeFileSync(config, JSON.stringify({ ...findingsConfig(library), gates: { onFindings: false } }));
    expect(await line.mass('new', 'x', '--config', config)).toMatchObject({ code: 0 });
    fill(2_600_000);

    const failed = await line.mass('run', 'x', '--until', 'select');
    expect(failed.code).toBe(1);
    expect(failed.out).toMatch(/^Run failed\. /);
    expect(failed.out).toContain(sentence);
    // Nobody reads this as "running", although the disk has no room to say how it ended.
    fill(0);
    const status = JSON.parse((await line.mass('status', 'x', '--json')).out);
    expect(status).toMatchObject({ state: 'failed', message: expect.stringContaining(sentence) });
    expect(await line.mass('run', 'x', '--until', 'select')).toMatchObject({
      code: 1,
      err: expect.stringContaining(sentence),
    });
    await line.end();
    expect(await line.mass('status')).toMatchObject({ code: 1, err: expect.stringContaining(sentence) });

    free();
    const before = await settledEpisodes();
    expect(before.length).toBeGreaterThan(0);
    expect(await line.mass('run', 'x', '--until', 'select')).toMatchObject({ code: 0 });
    const after = await settledEpisodes();
    expect(after.slice(0, before.length)).toEqual(before);
    expect(new Set(after).size).toBe(after.length);
  },
);

it.runIf(canMount)('without leaving the engine, the end that could not be written is written', async () => {
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', line.data]);
  const config = join(folder, 'config.json');
  writeFileSync(config, JSON.stringify(findingsConfig(writeTaskLibrary(join(folder, 'tasks')))));
  await line.mass('new', 'x', '--config', config);
  fill(1_300_000);
  expect((await line.mass('run', 'x', '--until', 'collect')).code).toBe(1);
  free();
  expect(await line.mass('run', 'x', '--until', 'collect')).toMatchObject({ code: 0 });
  const log = (await line.mass('log', 'x')).out;
  expect(log.match(/Run failed: /g)).toHaveLength(1);
  expect(log.match(/Run done/g)).toHaveLength(1);
});
