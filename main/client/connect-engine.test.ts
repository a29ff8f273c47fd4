import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { StoredEvent } from '../common/domain/events.ts';
import { projectRoot } from '../node/project-root.ts';
import { connectEngine, readEngineFile } from './connect-engine.ts';
import { engineEnvironment } from './engine-environment.ts';
import { followEvents } from './follow-events.ts';

const entry = join(projectRoot, 'main/engine/testing/stub-main.ts');
let dataFolder: string;
beforeEach(() => {
  dataFolder = mkdtempSync(join(tmpdir(), 'mass-client-'));
});
afterEach(async () => {
  delete process.env['MASS_STUB'];
  const file = readEngineFile(dataFolder);
  if (file !== null) {
    process.kill(file.pid, 'SIGTERM');
    await expect.poll(() => existsSync(join(dataFolder, 'engine.json')), { timeout: 10_000 }).toBe(false);
  }
  // The engine writes its last file a moment after it removed engine.json.
  await vi.waitFor(() => rmSync(dataFolder, { recursive: true, force: true }), { timeout: 10_000 });
});

describe('connectEngine', () => {
  it('says that none runs when it may not start one', async () => {
    await expect(connectEngine({ dataFolder, start: false, entry })).rejects.toMatchObject({ code: 'not_found' });
  });

  it('starts one, attaches to it the second time, and the engine ends when asked', async () => {
    const first = await connectEngine({ dataFolder, start: true, entry });
    const second = await connectEngine({ dataFolder, start: true, entry });
    expect([first.started, second.started]).toEqual([true, false]);
    expect(statSync(join(dataFolder, 'engine.json')).mode & 0o777).toBe(0o600);
    const { pid } = await second.call('engine.info', {});
    expect(pid).toBe(readEngineFile(dataFolder)?.pid);
    const closed = new Promise<void>((resolve) => first.onClose(resolve));
    expect(await second.call('engine.stop', { mode: 'now', shutdown: true })).toMatchObject({ stopped: true });
    await closed;
    await expect.poll(() => existsSync(join(dataFolder, 'engine.json')), { timeout: 10_000 }).toBe(false);
  });

  it('gives clients that come at once the same engine', async () => {
    const engines = await Promise.all([1, 2, 3].map(() => connectEngine({ dataFolder, start: true, entry })));
    const infos = await Promise.all(engines.map((engine) => engine.call('engine.info', {})));
    expect(new Set(infos.map((info) => info.pid)).size).toBe(1);
    expect(engines.filter((engine) => engine.started)).toHaveLength(1);
    // A starter left behind would own the folder as soon as the engine ends.
    const processes = execFileSync('ps', ['-axo', 'args'], { encoding: 'utf8' }).split('\n');
    expect(processes.filter((line) => line.includes(entry) && line.includes(dataFolder))).toHaveLength(1);
    for (const engine of engines) engine.close();
  });

  it('starts a new one while the last is still ending', async () => {
    const first = await connectEngine({ dataFolder, start: true, entry });
    const { pid } = await first.call('engine.info', {});
    await first.call('engine.stop', { mode: 'now', shutdown: true });
    await expect.poll(() => readEngineFile(dataFolder), { timeout: 10_000 }).toBeNull();
    const second = await connectEngine({ dataFolder, start: true, entry });
    expect((await second.call('engine.info', {})).pid).not.toBe(pid);
    second.close();
  });

  it('ends by itself some time after its last client has left, not before', async () => {
    process.env['MASS_STUB'] = 'idle';
    const engine = await connectEngine({ dataFolder, start: true, entry });
    const closed = new Promise<string>((resolve) => engine.onClose(() => resolve('closed')));
    const longer = new Promise<string>((resolve) => setTimeout(() => resolve('open'), 2000));
    expect(await Promise.race([closed, longer])).toBe('open');
    engine.close();
    await expect.poll(() => readEngineFile(dataFolder), { timeout: 10_000 }).toBeNull();
  });

  it("reports the engine's own start error", async () => {
    process.env['MASS_STUB'] = 'no-start';
    await expect(connectEngine({ dataFolder, start: true, entry })).rejects.toMatchObject({
      code: 'prerequisite',
      message: 'The stub cannot start; unset MASS_STUB.',
      cause: { message: 'told so' },
    });
  });

  it('rejects a pending call when its signal aborts', async () => {
    process.env['MASS_STUB'] = 'forever';
    const engine = await connectEngine({ dataFolder, start: true, entry });
    const abort = new AbortController();
    const call = engine.call('run.wait', { runId: 'run_1' }, { signal: abort.signal });
    abort.abort();
    await expect(call).rejects.toMatchObject({ code: 'cancelled' });
    engine.close();
  });

  it('follows events in order and once', async () => {
    const engine = await connectEngine({ dataFolder, start: true, entry });
    const seen: number[] = [];
    const stop = new AbortController();
    const onEvent = (event: StoredEvent): void => void seen.push(event.seq);
    await engine.call('run.start', { name: 'first', stages: ['search'] });
    const following = followEvents(engine, { after: 0, signal: stop.signal, onEvent });
    await engine.call('run.start', { name: 'first', stages: ['collect', 'rank'] });
    await expect.poll(() => seen, { timeout: 10_000 }).toEqual([1, 2, 3]);
    stop.abort();
    await following;
    engine.close();
  });
});

it('engineEnvironment keeps what the engine needs and no secret', () => {
  const environment = engineEnvironment({
    PATH: '/bin',
    HF_HOME: '/hf',
    HF_TOKEN: 's',
    LC_ALL: 'C',
    OPENAI_API_KEY: 's',
    HTTPS_PROXY: 'http://p',
    NODE_OPTIONS: '--inspect',
  });
  expect(environment).toEqual({ PATH: '/bin', HF_HOME: '/hf', LC_ALL: 'C', HTTPS_PROXY: 'http://p' });
});
