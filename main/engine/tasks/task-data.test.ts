import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { MassError } from '../../common/base/errors.ts';
import type { Task } from '../../common/domain/task.ts';
import { ensureTaskData, placeTaskData, type RunDataScript } from './task-data.ts';
import { readTaskLibrary } from './task-library.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-data-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const cacheRoot = () => join(root, 'cache');

const task = (files: string[] = ['a.csv', 'sub/b.csv']): Task => ({
  manifest: {
    id: 'alpha',
    number: 1,
    title: 'Alpha',
    domain: 'neutral',
    deliverables: [{ path: 'report.md', kind: 'report', description: '' }],
    data: { script: 'data.py', seed: 7, files },
  },
  barePrompt: 'x',
  initialWorkflow: '{}',
  folder: '/tasks/alpha',
  contentHash: 'c'.repeat(64),
});

/** Stands in for the sandboxed script: counts its runs and writes what it is told. */
function scripted(write: (outDir: string) => void) {
  const calls: unknown[] = [];
  const runScript: RunDataScript = async (script, args, outDir) => {
    calls.push([script, args]);
    expect(existsSync(outDir)).toBe(false);
    mkdirSync(outDir);
    write(outDir);
  };
  return { calls, runScript };
}
const writeBoth = (outDir: string): void => {
  writeFileSync(join(outDir, 'a.csv'), 'abc');
  mkdirSync(join(outDir, 'sub'));
  writeFileSync(join(outDir, 'sub/b.csv'), '');
  writeFileSync(join(outDir, 'undeclared.csv'), 'x');
};

describe('ensureTaskData', () => {
  it('runs the script once with the seed and lists the declared files', async () => {
    const { calls, runScript } = scripted(writeBoth);
    const data = await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript });
    expect(calls).toEqual([['/tasks/alpha/data.py', ['7']]]);
    expect(data.files).toEqual([
      { path: 'a.csv', sha256: 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', bytes: 3 },
      { path: 'sub/b.csv', sha256: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', bytes: 0 },
    ]);
    expect(existsSync(join(data.folder, 'undeclared.csv'))).toBe(false);
    expect(statSync(join(data.folder, 'a.csv')).mode & 0o777).toBe(0o444);
    expect(await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript })).toEqual(data);
    expect(calls).toHaveLength(1);
    expect(readdirSync(cacheRoot())).toEqual(['c'.repeat(64)]);
  });

  it('shares one run between concurrent calls', async () => {
    const { calls, runScript } = scripted(writeBoth);
    const all = [1, 2, 3].map(() => ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript }));
    const [first, ...rest] = await Promise.all(all);
    for (const other of rest) expect(other).toEqual(first);
    expect(calls).toHaveLength(1);
  });

  it('makes a damaged or half-removed cache again', async () => {
    const { calls, runScript } = scripted(writeBoth);
    const { folder } = await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript });
    chmodSync(join(folder, 'a.csv'), 0o644);
    writeFileSync(join(folder, 'a.csv'), 'abd');
    await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript });
    expect(readFileSync(join(folder, 'a.csv'), 'utf8')).toBe('abc');
    rmSync(join(folder, '.index.json'));
    await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript });
    expect(calls).toHaveLength(3);
  });

  it('leaves nothing behind when the script fails, and works at the next call', async () => {
    const failing: RunDataScript = async () => {
      throw new Error('exit code 1');
    };
    await expect(ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript: failing })).rejects.toMatchObject({
      code: 'infrastructure',
      message: 'The data script of task alpha failed; run it by hand to see why.',
    });
    expect(readdirSync(cacheRoot())).toEqual([]);
    const { runScript } = scripted(writeBoth);
    expect((await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript })).files).toHaveLength(2);
  });

  it('refuses a missing file, a link, a linked folder and a folder', async () => {
    const outcome = async (files: string[], write: (outDir: string) => void) => {
      const { runScript } = scripted(write);
      return ensureTaskData({ task: task(files), cacheRoot: cacheRoot(), runScript }).catch(
        (e: MassError) => e.message,
      );
    };
    expect(await outcome(['a.csv'], () => undefined)).toMatch(/did not write a\.csv; write it or correct/);
    expect(await outcome(['a.csv'], (d) => symlinkSync('/etc/hostname', join(d, 'a.csv')))).toMatch(/plain file/);
    expect(await outcome(['etc/hostname'], (d) => symlinkSync('/etc', join(d, 'etc')))).toMatch(/not a folder/);
    expect(await outcome(['a.csv'], (d) => mkdirSync(join(d, 'a.csv')))).toMatch(/plain file/);
    expect(readdirSync(cacheRoot())).toEqual([]);
  });

  it('needs no script for a task without data', async () => {
    const { data: _, ...manifest } = task().manifest;
    const bare = { ...task(), manifest };
    const { calls, runScript } = scripted(writeBoth);
    expect((await ensureTaskData({ task: bare, cacheRoot: cacheRoot(), runScript })).files).toEqual([]);
    expect(calls).toEqual([]);
  });

  it('makes the data of the shipped tasks with a real Python', async () => {
    const runScript: RunDataScript = async (script, args, outDir) => {
      mkdirSync(outDir);
      execFileSync('python3', ['-I', script, outDir, ...args]);
    };
    for (const shipped of await readTaskLibrary('builtin')) {
      const data = await ensureTaskData({ task: shipped, cacheRoot: cacheRoot(), runScript });
      expect(data.files.map((f) => f.path)).toEqual(shipped.manifest.data?.files);
      for (const file of data.files) expect(file.bytes).toBeGreaterThan(300);
    }
  });
});

describe('placeTaskData', () => {
  it('copies read-only into data/, and can be repeated', async () => {
    const { runScript } = scripted(writeBoth);
    const data = await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript });
    const workspace = join(root, 'workspace');
    mkdirSync(workspace);
    writeFileSync(join(root, 'stale'), '');
    for (let i = 0; i < 2; i++) {
      await placeTaskData(data, workspace);
      expect(readFileSync(join(workspace, 'data/a.csv'), 'utf8')).toBe('abc');
      expect(readdirSync(join(workspace, 'data')).sort()).toEqual(['a.csv', 'sub']);
      expect(statSync(join(workspace, 'data/sub/b.csv')).mode & 0o777).toBe(0o444);
    }
  });

  it('says where it could not write', async () => {
    const { runScript } = scripted(writeBoth);
    const data = await ensureTaskData({ task: task(), cacheRoot: cacheRoot(), runScript });
    writeFileSync(join(root, 'file'), '');
    await expect(placeTaskData(data, join(root, 'file'))).rejects.toMatchObject({
      code: 'infrastructure',
      message: /check disk space/,
    });
  });
});
