import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { readEngineFile } from '../client/connect-engine.ts';
import { projectRoot } from '../node/project-root.ts';

let dataFolder: string;
beforeEach(() => {
  dataFolder = mkdtempSync(join(tmpdir(), 'mass-cli-'));
});
afterEach(async () => {
  const file = readEngineFile(dataFolder);
  if (file !== null) {
    process.kill(file.pid, 'SIGTERM');
    await expect.poll(() => readEngineFile(dataFolder), { timeout: 10_000 }).toBeNull();
  }
  // The engine writes its last file a moment after it removed engine.json.
  await vi.waitFor(() => rmSync(dataFolder, { recursive: true, force: true }), { timeout: 10_000 });
});

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function mass(args: readonly string[], stub = '', started: (child: ChildProcess) => void = () => undefined) {
  return new Promise<Ended>((resolve, reject) => {
    const child = spawn(process.execPath, [join(projectRoot, 'main/cli/launch.mjs'), ...args, '--data', dataFolder], {
      env: {
        ...process.env,
        MASS_ENGINE_ENTRY: join(projectRoot, 'main/engine/testing/stub-main.ts'),
        MASS_STUB: stub,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => {
      stdout += String(data);
    });
    child.stderr.on('data', (data) => {
      stderr += String(data);
      started(child);
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** The same on a terminal, where a question is answered with a word. */
function atTerminal(args: readonly string[], word: string): Promise<{ code: number | null; screen: string }> {
  const words = [process.execPath, join(projectRoot, 'main/cli/launch.mjs'), ...args, '--data', dataFolder];
  return new Promise((resolve, reject) => {
    const child = spawn('script', ['--quiet', '--return', '--command', words.join(' '), '/dev/null'], {
      env: { ...process.env, MASS_ENGINE_ENTRY: join(projectRoot, 'main/engine/testing/stub-main.ts') },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    let screen = '';
    let answered = false;
    child.stdout.on('data', (data) => {
      screen += String(data);
      if (!answered && screen.includes('[after/now/no]')) {
        answered = true;
        child.stdin.write(`${word}\n`);
      }
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, screen }));
  });
}

describe('mass', () => {
  it('prints JSON on standard output only', async () => {
    const { code, stdout, stderr } = await mass(['status', '--json']);
    expect(JSON.parse(stdout)).toEqual([{ name: 'first', state: 'new', createdAt: 0, model: 'stub' }]);
    expect([code, stderr]).toEqual([0, '']);
  });

  it('fails with 1 and the error as a sentence, or as JSON', async () => {
    expect(await mass(['status', 'nope'])).toEqual({
      code: 1,
      stdout: '',
      stderr: 'There is no experiment "nope".\n',
    });
    const { code, stdout, stderr } = await mass(['status', 'nope', '--json']);
    expect(JSON.parse(stdout)).toEqual({ error: { code: 'not_found', message: 'There is no experiment "nope".' } });
    expect([code, stderr]).toEqual([1, '']);
  });

  it('fails with 1 and the cause when the engine cannot start', async () => {
    const { code, stderr } = await mass(['status'], 'no-start');
    expect([code, stderr]).toEqual([1, 'The stub cannot start; unset MASS_STUB.\nCause: told so\n']);
  });

  it('answers misuse with 2', async () => {
    expect((await mass(['nonsense'])).code).toBe(2);
    const { code, stdout } = await mass(['run', 'first', '--until', 'lunch', '--json']);
    expect([code, JSON.parse(stdout).error.code]).toEqual([2, 'usage']);
  });

  it('needs a word on how to stop when nobody can be asked, and stops with it', async () => {
    expect(await mass(['stop'])).toMatchObject({ code: 0, stdout: 'No engine runs, so nothing to stop.\n' });
    await mass(['status']);
    expect((await mass(['stop'])).code).toBe(2);
    expect(await mass(['stop', '--now', '--engine'])).toMatchObject({ code: 0, stdout: 'Stopped; the engine ends.\n' });
    await expect.poll(() => readEngineFile(dataFolder), { timeout: 10_000 }).toBeNull();
  });

  it.runIf(process.platform === 'linux')(
    'asks how to stop, saying what would be lost',
    { timeout: 60_000 },
    async () => {
      const log = async () => (await mass(['log', 'first', '--all'])).stdout;
      await mass(['status']);
      const no = await atTerminal(['stop'], 'no');
      expect(no.screen).toContain(
        'Stopping now: 2 episodes in flight with 300 generated tokens would be lost and run again.',
      );
      expect(no.screen).toContain('Stop after the episodes in flight, now, or not at all? [after/now/no]');
      expect(no).toMatchObject({ code: 0, screen: expect.stringMatching(/Nothing stopped\.\s*$/) });
      expect(await log()).not.toContain('stopped');
      for (const mode of ['after', 'now'] as const) {
        expect(await atTerminal(['stop'], mode)).toMatchObject({
          code: 0,
          screen: expect.stringMatching(/Stopped\.\s*$/),
        });
        expect(await log()).toContain(`stopped ${mode}`);
      }
    },
  );

  it('runs, telling events on standard error', async () => {
    const { code, stdout, stderr } = await mass(['run', 'first', '--until', 'collect']);
    expect([code, stdout]).toEqual([0, 'Run done. All stages are done.\n']);
    expect(stderr).toMatch(
      /^\d\d:\d\d:\d\d Cycle 1, stage search started\.\n\d\d:\d\d:\d\d Cycle 1, stage collect started\.\n$/,
    );
  });

  it('exits with 3 at a gate', async () => {
    expect(await mass(['rank', 'first'], 'gate')).toMatchObject({
      code: 3,
      stdout: 'Run stopped. A person must look.\n',
    });
  });

  it('leaves a run going at Ctrl-C and says how to stop it', async () => {
    let sent = false;
    const { code, stdout } = await mass(['run', 'first'], 'forever', (child) => {
      if (!sent) child.kill('SIGINT');
      sent = true;
    });
    expect([code, stdout]).toEqual([
      130,
      'The run goes on; follow it with "mass log first --follow", stop it with "mass stop first".\n',
    ]);
    expect(readEngineFile(dataFolder)).not.toBeNull();
  });

  it('gives help with an example', async () => {
    const { code, stdout } = await mass(['stop', '--help']);
    expect(code).toBe(0);
    expect(stdout).toContain('Example:\n  mass stop first --after');
  });
});
