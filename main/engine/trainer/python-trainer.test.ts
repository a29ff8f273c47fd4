import { execFileSync, fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { TrainOrder } from '../../common/protocol/trainer.ts';
import { createPythonTrainer, type TrainerLimits } from './python-trainer.ts';
import { trainerEnvironment } from './trainer-process-environment.ts';

const fake = fileURLToPath(new URL('./testing/fake-sidecar.ts', import.meta.url));
const parent = fileURLToPath(new URL('./testing/trainer-parent.ts', import.meta.url));
const noWarning = '--disable-warning=ExperimentalWarning';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-sidecar-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const order: TrainOrder = {
  model: { base: { kind: 'gguf', path: '/model.gguf' }, merged: [] },
  servedGguf: '/model.gguf',
  windows: '/windows',
  output: '/out',
  recipe: {
    ...{
      rank: 4,
      alpha: 8,
      dropout: 0,
      steps: 2,
      windowsPerStep: 1,
      learningRate: 1e-4,
      warmupSteps: 0,
      finalShare: 0.1,
    },
    ...{
      betas: [0.9, 0.95],
      weightDecay: 0,
      gradNorm: 1,
      orchestratorShare: 0.3,
      checkpointEvery: 1,
      validateEvery: 1,
    },
    ...{ patience: 0, lossChunk: 64, seed: 1 },
  },
  machine: { device: 'cpu', threads: 1, allowSlowKernels: false },
};

function trainerThat(scenario: string, limits: Partial<TrainerLimits> = {}) {
  const log: [string, string, unknown][] = [];
  const trainer = createPythonTrainer({
    python: 'unused',
    logger: { log: (level, message, fields) => log.push([level, message, fields]) },
    limits: { stopMs: 2000, drainPollMs: 10, ...limits },
    command: {
      program: process.execPath,
      args: [noWarning, fake, scenario, join(folder, 'sent')],
      cwd: folder,
      env: { PATH: process.env.PATH ?? '' },
    },
  });
  return { trainer, log };
}

interface Watch {
  readonly signal?: AbortSignal;
  readonly draining?: () => boolean;
  readonly limits?: Partial<TrainerLimits>;
  readonly onEvent?: (kind: string) => void;
}

function train(scenario: string, watch: Watch = {}) {
  const { trainer, log } = trainerThat(scenario, watch.limits);
  const events: string[] = [];
  const done = trainer.train(order, {
    signal: watch.signal ?? new AbortController().signal,
    draining: watch.draining ?? (() => false),
    onEvent: (event) => {
      events.push(event.kind);
      watch.onEvent?.(event.kind);
    },
  });
  return { done, events, log };
}

const sent = (): string[] =>
  readFileSync(join(folder, 'sent'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { kind: string }).kind);

/** Processes whose command line names this test's folder. */
const left = (): string =>
  execFileSync('ps', ['-eo', 'args'])
    .toString()
    .split('\n')
    .filter((line) => line.includes(folder))
    .join('\n');

describe('the trainer process', () => {
  it('sends its events in order, logs and standard error go to the logger', async () => {
    const { done, events, log } = train('good');
    await expect(done).resolves.toMatchObject({ kind: 'done', state: 'finished', step: 2 });
    expect(events).toEqual(['started', 'step', 'step', 'checkpoint']);
    expect(log).toContainEqual(['warn', 'slow kernels', { missing: 'fla' }]);
    expect(log).toContainEqual(['debug', 'loading weights', undefined]);
    expect(sent()).toEqual(['start']);
    expect(left()).toBe('');
  });

  it('may cut a line anywhere, also within a character', async () => {
    await expect(train('split').done).resolves.toMatchObject({ message: 'grün' });
  });

  it('answers single orders with the order it was given', async () => {
    const { trainer } = trainerThat('plans');
    const plan = await trainer.plan(order, new AbortController().signal);
    expect(plan).toMatchObject({ fits: false, longestWindow: 4, hours: 2 });
    await expect(trainer.capabilities(new AbortController().signal)).resolves.toMatchObject({ device: 'cpu: fake' });
  });

  it('is asked to end after the step in progress', async () => {
    let steps = 0;
    const { done, events } = train('drains', {
      draining: () => steps > 1,
      onEvent: (kind) => {
        if (kind === 'step') steps++;
      },
    });
    await expect(done).resolves.toMatchObject({ state: 'stopped', message: 'as asked' });
    expect(events.length).toBeGreaterThan(2);
    expect(sent()).toEqual(['start', 'stop-after-step']);
  });
});

describe('what goes wrong with the trainer process', () => {
  const failing = (scenario: string, watch: Watch = {}) => train(scenario, watch).done;

  it.each([
    ['garbage', 'infrastructure', /it is not JSON.*The line begins: Traceback \(most recent call last\): x{100,}$/],
    ['not-an-event', 'infrastructure', /The line begins: \{"kind":"step","step":"two"\}$/],
    ['killed', 'infrastructure', /^The trainer ended \(signal SIGKILL\).*may have run out of memory/],
    ['out-of-memory', 'prerequisite', /^Training ran out of memory\.$/],
    ['other-protocol', 'prerequisite', /speaks protocol 7 and this program 1/],
    ['stillborn', 'prerequisite', /mend it with: mass doctor --repair\. .*exit code 1.*No module named 'torch'$/],
    ['wrong-answer', 'infrastructure', /answered "merged" while it was to train/],
  ])('%s', async (scenario, code, message) => {
    await expect(failing(scenario)).rejects.toMatchObject({ code, message: expect.stringMatching(message) as string });
    expect(left()).toBe('');
  });

  it('keeps what an error event knows', async () => {
    await expect(failing('out-of-memory')).rejects.toMatchObject({
      details: { needed: 2 },
      cause: expect.objectContaining({ message: 'CUDA' }) as Error,
    });
  });

  it('says how it ended and its last lines, after the events before', async () => {
    const { done, events } = train('exits-3');
    await expect(done).rejects.toMatchObject({
      code: 'infrastructure',
      message: expect.stringMatching(/exit code 3.*the first line \| ValueError: the last line$/) as string,
      details: { exitCode: 3, signal: null },
    });
    expect(events).toEqual(['started']);
  });

  it('a line without end is cut off', async () => {
    await expect(failing('huge', { limits: { lineBytes: 5000 } })).rejects.toMatchObject({
      code: 'infrastructure',
      details: { head: 'y'.repeat(200) },
    });
    expect(left()).toBe('');
  });

  it.each([
    ['mute', { helloMs: 300 }, 'start', 'prerequisite'],
    ['silent', { silenceMs: 300 }, 'train', 'infrastructure'],
  ])('%s: silence is bounded', async (scenario, limits, what, code) => {
    await expect(failing(scenario, { limits })).rejects.toMatchObject({
      code,
      message: expect.stringContaining(`said nothing for 1 minute while it was to ${what}`) as string,
    });
    expect(left()).toBe('');
  });

  it('lines after the last event change nothing', async () => {
    await expect(failing('late')).resolves.toMatchObject({ state: 'finished' });
  });

  it('a Python that is not there is a prerequisite', async () => {
    const trainer = createPythonTrainer({ python: '/nowhere/python', logger: { log: () => undefined } });
    await expect(trainer.capabilities(new AbortController().signal)).rejects.toMatchObject({
      code: 'prerequisite',
      message: expect.stringContaining('/nowhere/python cannot be started') as string,
    });
  });
});

describe('stopping the trainer process', () => {
  it('asks it first', async () => {
    const abort = new AbortController();
    const { done } = train('obedient', { signal: abort.signal, onEvent: () => abort.abort() });
    await expect(done).rejects.toMatchObject({ code: 'cancelled' });
    expect(sent()).toEqual(['start', 'stop-now']);
    expect(left()).toBe('');
  });

  it('kills it with all it started when it does not end', async () => {
    const abort = new AbortController();
    const watch = { signal: abort.signal, onEvent: () => abort.abort(), limits: { stopMs: 200 } };
    await expect(train('stubborn', watch).done).rejects.toMatchObject({ code: 'cancelled' });
    expect(left()).toBe('');
  });

  it('starts nothing once it is too late', async () => {
    const { trainer } = trainerThat('good');
    await expect(trainer.plan(order, AbortSignal.abort())).rejects.toMatchObject({ code: 'cancelled' });
    expect(() => sent()).toThrow('ENOENT');
  });

  it('happens by itself when the engine is killed', async () => {
    const engine = fork(parent, [process.execPath, noWarning, fake, 'silent', join(folder, 'sent')], {
      execArgv: [noWarning],
    });
    const pid = await new Promise<number>((resolve) => engine.once('message', (message) => resolve(Number(message))));
    expect(pid).toBeGreaterThan(0);
    expect(left()).not.toBe('');
    engine.kill('SIGKILL');
    await vi.waitFor(() => expect(left()).toBe(''), 10_000);
  });
});

describe('the environment of the trainer process', () => {
  it('has devices and folders, no secrets and no packages from elsewhere', () => {
    const from = {
      PATH: '/bin',
      CUDA_VISIBLE_DEVICES: '0',
      PYTORCH_ALLOC_CONF: 'x',
      HF_TOKEN: 's',
      PYTHONPATH: '/other',
    };
    const given = trainerEnvironment(from);
    expect(given).toMatchObject({
      PATH: '/bin',
      CUDA_VISIBLE_DEVICES: '0',
      PYTORCH_ALLOC_CONF: 'x',
      HF_HUB_OFFLINE: '1',
    });
    expect(Object.keys(given)).not.toContain('HF_TOKEN');
    expect(Object.keys(given)).not.toContain('PYTHONPATH');
  });
});
