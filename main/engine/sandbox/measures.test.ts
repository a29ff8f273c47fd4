import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { createSandbox, detectSandbox, installCommand } from './detect.ts';
import { ENTRY_BYTES, measureDiskUsage } from './disk-usage.ts';
import { HeadTailBuffer } from './head-tail-buffer.ts';
import { CpuMeter, type ProcessStat, parseProcessStat, type TreeSample } from './process-tree.ts';

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'mass-measures-'));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

describe('HeadTailBuffer', () => {
  test('keeps head and tail and counts the rest', () => {
    const buffer = new HeadTailBuffer(6);
    for (const chunk of ['ab', 'cdefgh', 'ijk']) buffer.push(Buffer.from(chunk));
    expect(buffer.toString()).toBe('abc\n[... 5 bytes dropped ...]\nijk');
    expect(buffer.totalBytes).toBe(11);
  });

  test('does not show halves of characters', () => {
    const text = Buffer.from('abcé—é—xyz—z'); // 20 bytes
    const cutInHead = new HeadTailBuffer(8); // the fourth byte is the first of é
    cutInHead.push(text);
    expect(cutInHead.toString()).toBe('abc\n[... 13 bytes dropped ...]\n—z');
    const cutInTail = new HeadTailBuffer(6); // the last three bytes begin within —
    cutInTail.push(text);
    expect(cutInTail.toString()).toBe('abc\n[... 16 bytes dropped ...]\nz');
    const invalid = new HeadTailBuffer(8);
    invalid.push(Buffer.from([0x61, 0xff, 0x62]));
    expect(invalid.toString()).toBe('a\ufffdb');
  });

  test('equals slicing the whole, for any chunks', () => {
    const bytes = fc.uint8Array({ maxLength: 50 }).map((chunk) => Buffer.from(chunk.map((byte) => 32 + (byte % 90))));
    fc.assert(
      fc.property(fc.array(bytes, { maxLength: 30 }), fc.nat(100), (chunks, limit) => {
        const buffer = new HeadTailBuffer(limit);
        for (const chunk of chunks) buffer.push(chunk);
        const whole = Buffer.concat(chunks).toString();
        const head = Math.ceil(limit / 2);
        const tail = limit - head;
        const cut = `${whole.slice(0, head)}\n[... ${whole.length - limit} bytes dropped ...]\n${whole.slice(whole.length - tail)}`;
        expect(buffer.toString()).toBe(whole.length <= limit ? whole : cut);
      }),
    );
  });
});

describe('process statistics', () => {
  test('a command name cannot shift the fields', () => {
    const fields = Array.from({ length: 50 }, (_, index) => index + 3)
      .join(' ')
      .replace('3', 'S');
    expect(parseProcessStat(`17 (a) b (c) ${fields}`)).toEqual({
      pid: 17,
      state: 'S',
      parent: 4,
      group: 5,
      session: 6,
      ownTicks: 29,
      reapedTicks: 33,
      threads: 20,
      startTicks: 22,
      rssPages: 24,
    });
    expect(parseProcessStat('')).toBeNull();
    expect(parseProcessStat('17 (cut) S 1')).toBeNull();
  });

  const sample = (stats: Partial<ProcessStat>[]): TreeSample => ({
    processes: stats.length,
    tasks: stats.length,
    rssBytes: 0,
    stats: stats.map((stat) => ({
      pid: 1,
      state: 'S',
      parent: 0,
      group: 0,
      session: 0,
      ownTicks: 0,
      reapedTicks: 0,
      threads: 1,
      startTicks: 0,
      rssPages: 0,
      ...stat,
    })),
  });

  test('CPU of ended processes is not forgotten, reaped or not', () => {
    const ignored = new CpuMeter(); // SIGCHLD ignored: nobody's reaped time grows
    expect(ignored.add(sample([{ pid: 1 }, { pid: 2, ownTicks: 300 }]))).toBe(3);
    expect(ignored.add(sample([{ pid: 1 }, { pid: 3, ownTicks: 200 }]))).toBe(5);
    const reaped = new CpuMeter(); // short-lived children between two samples
    expect(reaped.add(sample([{ pid: 1, reapedTicks: 700 }]))).toBe(7);
    const reused = new CpuMeter(); // one number, two processes
    reused.add(sample([{ pid: 2, ownTicks: 100, startTicks: 5 }]));
    expect(reused.add(sample([{ pid: 2, ownTicks: 100, startTicks: 9 }]))).toBe(2);
  });
});

describe('disk usage', () => {
  test('counts blocks once per file, holes not at all, links not followed', async () => {
    const folder = path.join(root, 'disk');
    fs.mkdirSync(folder);
    fs.writeFileSync(path.join(folder, 'a'), Buffer.alloc(1 << 20));
    fs.linkSync(path.join(folder, 'a'), path.join(folder, 'b'));
    fs.symlinkSync('/usr', path.join(folder, 'link'));
    fs.writeFileSync(path.join(folder, 'hole'), '');
    fs.truncateSync(path.join(folder, 'hole'), 1 << 30);
    const usage = await measureDiskUsage(folder);
    expect(usage.entries).toBe(4);
    expect(usage.bytes).toBeGreaterThanOrEqual((1 << 20) + 4 * ENTRY_BYTES);
    expect(usage.bytes).toBeLessThan((1 << 20) + 64 * 1024);
    expect((await measureDiskUsage(folder, 1000)).entries).toBeLessThan(4);
  });
});

describe('detection', () => {
  test('names the command to type', async () => {
    expect(installCommand('ID=ubuntu\nID_LIKE=debian\n', false)).toBe('run `sudo apt-get install -y bubblewrap`');
    expect(installCommand('ID="rocky"\nID_LIKE="rhel centos fedora"\n', true)).toBe('run `dnf install -y bubblewrap`');
    expect(installCommand('', true)).toContain('the package "bubblewrap"');
    expect(await detectSandbox('/nonexistent')).toMatchObject({
      available: false,
      reason: 'bubblewrap is not installed',
    });
  });

  test('a bubblewrap that cannot work is said to be so', async () => {
    const folder = path.join(root, 'bin');
    fs.mkdirSync(folder);
    const script =
      '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 9.9 && exit\n[ "$1" = --help ] && exit\necho "bwrap: No permissions" >&2; exit 1\n';
    fs.writeFileSync(path.join(folder, 'bwrap'), script, { mode: 0o755 });
    fs.chmodSync(root, 0o755);
    expect(await detectSandbox(folder)).toMatchObject({
      available: false,
      version: '9.9',
      reason: expect.stringContaining('bwrap: No permissions'),
    });
  });
});

describe('host mode', () => {
  test('warns, runs, limits and ends the process group', async () => {
    const said: string[] = [];
    const sandbox = await createSandbox('host', { log: (level, message) => said.push(`${level} ${message}`) });
    expect(said).toEqual([expect.stringMatching(/^warn SANDBOX OFF/)]);
    const workspace = path.join(root, 'host');
    await sandbox.createWorkspace(workspace);
    await expect(sandbox.createWorkspace(workspace)).rejects.toMatchObject({ code: 'conflict' });
    const limits = { memoryMiB: 200, processes: 40, fileMiB: 1, diskMiB: 50, cpuSeconds: 20 };
    const request = { workspace, limits, wallSeconds: 20, outputBytes: 1000 };
    process.env.MASS_TEST_SECRET = 'sesame';
    const ended = await sandbox.run({ ...request, command: 'sleep 100 & echo $! > pid; pwd; env; exit 3' });
    expect(ended).toMatchObject({ exitCode: 3, stdout: expect.stringContaining(`${workspace}\n`), cancelled: false });
    expect(ended.stdout).not.toContain('sesame');
    const pid = Number(fs.readFileSync(path.join(workspace, 'pid'), 'utf8'));
    const stat = fs.existsSync(`/proc/${pid}/stat`)
      ? parseProcessStat(fs.readFileSync(`/proc/${pid}/stat`, 'utf8'))
      : null;
    expect(stat === null || stat.state === 'Z').toBe(true);
    expect(await sandbox.run({ ...request, command: 'nice' })).toMatchObject({ stdout: `${os.getPriority() + 10}\n` });
    expect(await sandbox.run({ ...request, command: 'head -c 3M /dev/zero > big' })).toMatchObject({ limit: 'file' });
    expect(await sandbox.run({ ...request, command: 'sleep 100', wallSeconds: 0.2 })).toMatchObject({
      limit: 'wall',
      exitCode: null,
    });
    const signal = AbortSignal.timeout(100);
    expect(await sandbox.run({ ...request, command: 'sleep 100', signal })).toMatchObject({ cancelled: true });
  });

  test('is never chosen for you', async () => {
    const found = await detectSandbox();
    if (found.available) expect((await createSandbox('bubblewrap', silentLogger)).mode).toBe('bubblewrap');
    else await expect(createSandbox('bubblewrap', silentLogger)).rejects.toMatchObject({ code: 'prerequisite' });
  });
});
