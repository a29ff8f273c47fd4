import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { processIdentity } from '../../node/process-identity.ts';
import { lockDataFolder } from './lock.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-lock-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function leaveLock(owner: unknown): void {
  mkdirSync(join(folder, 'lock'), { recursive: true });
  writeFileSync(join(folder, 'lock', '7.json'), typeof owner === 'string' ? owner : JSON.stringify(owner));
}
const deadPid = (): number => spawnSync(process.execPath, ['-e', '']).pid;

describe('lockDataFolder', () => {
  it('refuses a second owner, naming pid, folder and the way out, until the first releases', () => {
    const lock = lockDataFolder(folder);
    expect(() => lockDataFolder(folder)).toThrow(
      `An engine (pid ${process.pid}) already uses ${folder}; attach to it, or end it with "mass stop --engine --now".`,
    );
    lock.release();
    lockDataFolder(folder);
    expect(readdirSync(join(folder, 'lock'))).toEqual(['2.json']);
  });

  it('takes over from a dead owner, a reused pid and a damaged file', () => {
    for (const owner of [
      { pid: deadPid(), identity: '', released: false },
      { pid: process.pid, identity: 'another-boot:1', released: false },
      '{"pid":',
    ]) {
      leaveLock(owner);
      const lock = lockDataFolder(folder);
      expect(readdirSync(join(folder, 'lock'))).toEqual(['8.json']);
      lock.release();
      rmSync(join(folder, 'lock'), { recursive: true });
    }
  });

  it('respects a living owner', () => {
    leaveLock({ pid: process.pid, identity: processIdentity(process.pid), released: false });
    expect(() => lockDataFolder(folder)).toThrow(/already uses/);
  });

  it('lets exactly one of racing processes take over a stale lock', async () => {
    for (let round = 0; round < 4; round++) {
      leaveLock({ pid: deadPid(), identity: '', released: false });
      const racers = Array.from({ length: 4 }, startRacer);
      try {
        await Promise.all(racers.map((racer) => racer.line()));
        for (const racer of racers) racer.child.stdin?.write('go\n');
        const said = await Promise.all(racers.map((racer) => racer.line()));
        expect(said.filter((line) => line === 'won')).toHaveLength(1);
        expect(said.filter((line) => line.includes('already uses'))).toHaveLength(3);
      } finally {
        await Promise.all(racers.map((racer) => ended(racer.child)));
      }
      rmSync(join(folder, 'lock'), { recursive: true });
    }
  });
});

function startRacer(): { child: ChildProcess; line(): Promise<string> } {
  const script = fileURLToPath(new URL('../testing/lock-racer.ts', import.meta.url));
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', script, folder], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let text = '';
  let wake: () => void = () => undefined;
  child.stdout?.on('data', (chunk) => {
    text += String(chunk);
    wake();
  });
  const line = async (): Promise<string> => {
    while (!text.includes('\n')) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    const end = text.indexOf('\n');
    const first = text.slice(0, end);
    text = text.slice(end + 1);
    return first;
  };
  return { child, line };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGKILL');
  await exit;
}
