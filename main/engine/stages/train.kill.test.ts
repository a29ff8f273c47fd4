import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { seededRandom } from '../../common/base/seeded-random.ts';
import { openStore } from '../store/store.ts';
import { writeTaskLibrary } from '../testing/scripted-world.ts';

const entry = fileURLToPath(new URL('../testing/scripted-train-main.ts', import.meta.url));
const untilRender = 'search,collect,rank,select,render';

interface Order {
  readonly data: string;
  readonly library: string;
  readonly stages: string;
  /** kill -9 when it is about to train this step */
  readonly killAt?: number;
}

/** Resolves with the exit code, null when it was killed. */
function runProcess({ data, library, stages, killAt }: Order): Promise<number | null> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', entry, data, library, stages], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line === `step ${killAt}`) child.kill('SIGKILL');
    });
    child.on('exit', (code) => resolve(code));
  });
}

/** What a training is, without when and how often it was started. */
function trainingOf(data: string) {
  const store = openStore(data);
  try {
    const experimentId = store.experiments.byName('cycle')?.experimentId ?? '';
    const row = store.trainings.ofCycle({ experimentId, cycle: 1 });
    const trainingId = row?.trainingId ?? '';
    return {
      state: [row?.state, row?.step, row?.message],
      steps: store.trainings.steps(trainingId).map(({ step, loss, windowsJson }) => [step, loss, windowsJson]),
      validations: store.trainings.validations(trainingId).map(({ step, loss }) => [step, loss]),
      checkpoints: store.trainings.checkpoints(trainingId).map(({ step, bytes }) => [step, bytes]),
      folders: readdirSync(join(data, row?.folder ?? '')),
      starts: store.eventsSince(0, 100_000).filter(({ event }) => event.type === 'training.started').length,
    };
  } finally {
    store.close();
  }
}

it('trains the same, every step once, after kill -9 at random steps', async () => {
  const library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-train-kill-tasks-')));
  const killed = mkdtempSync(join(tmpdir(), 'mass-train-kill-'));
  const whole = mkdtempSync(join(tmpdir(), 'mass-train-whole-'));
  try {
    expect(await runProcess({ data: killed, library, stages: untilRender })).toBe(0);
    cpSync(killed, whole, { recursive: true });
    expect(await runProcess({ data: whole, library, stages: 'train' })).toBe(0);
    const random = seededRandom(7);
    let kills = 0;
    for (let at = 1; at < 30; at += 1 + Math.floor(random() * 6))
      if ((await runProcess({ data: killed, library, stages: 'train', killAt: at })) === null) kills++;
    expect(kills).toBeGreaterThan(4);
    expect(await runProcess({ data: killed, library, stages: 'train' })).toBe(0);
    const { starts, ...ended } = trainingOf(killed);
    const { starts: once, ...expected } = trainingOf(whole);
    expect(ended).toEqual(expected);
    expect([once, starts]).toEqual([1, kills + 1]);
  } finally {
    for (const folder of [library, whole, killed]) rmSync(folder, { recursive: true, force: true });
  }
});
