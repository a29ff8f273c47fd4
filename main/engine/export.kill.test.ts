import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { sha256 } from '../node/hashing.ts';
import { adapterFile } from './serve-target.ts';
import { openStore } from './store/store.ts';
import { writeTaskLibrary } from './testing/scripted-world.ts';

const entry = fileURLToPath(new URL('./testing/scripted-export-main.ts', import.meta.url));

/** Resolves with how the process ended: its exit code, or the signal's name. */
function runProcess(data: string, library: string, moment: string): Promise<number | string | null> {
  return new Promise((resolve) => {
    const args = ['--disable-warning=ExperimentalWarning', entry, data, library, moment];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
    child.on('exit', (code, signal) => resolve(signal ?? code));
  });
}

/** In the order in which a cycle comes to them. */
const moments = [
  'windows.rendered',
  'training.started',
  'training.checkpointed',
  'training.ended',
  'checkpoint.chosen',
  'converted',
  'adapter.exported',
  'placed',
  'scored',
  'parity.measured',
  'generation.registered',
];

it('makes one and the same L1 after kill -9 at every moment between the windows and the card', async () => {
  const library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-kill-export-tasks-')));
  const data = mkdtempSync(join(tmpdir(), 'mass-kill-export-'));
  try {
    for (const moment of moments)
      expect([moment, await runProcess(data, library, moment)]).toEqual([moment, 'SIGKILL']);
    expect(await runProcess(data, library, '')).toBe(0);
    const store = openStore(data);
    const events = store.eventsSince(0, 100_000).map(({ event }) => event);
    const count = (type: string): number => events.filter((event) => event.type === type).length;
    expect(['windows.rendered', 'checkpoint.chosen', 'parity.measured'].map(count)).toEqual([1, 1, 1]);
    const experimentId = store.experiments.byName('cycle')?.experimentId ?? '';
    const [, l1, ...more] = store.experiments.generations(experimentId);
    expect(more).toEqual([]);
    const training = store.trainings.ofCycle({ experimentId, cycle: 1 });
    const trainingId = training?.trainingId ?? '';
    expect(store.trainings.steps(trainingId).map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6]);
    const checkpoint = store.trainings.checkpoints(trainingId).find(({ step }) => step === 6);
    const trained = readFileSync(join(data, checkpoint?.folder ?? '', 'adapter_model.safetensors'));
    // The scripted trainer converts an adapter to its own bytes.
    expect(l1?.adapterSha256).toBe(sha256(trained));
    expect(readFileSync(adapterFile(data, l1?.adapterSha256 ?? ''))).toEqual(trained);
    expect(readdirSync(join(data, 'adapters'))).toHaveLength(1);
    expect(sha256(readFileSync(join(data, 'generations/cycle-L1/README.md')))).toBe(l1?.cardHash);
    expect(readdirSync(join(data, 'exporting'))).toEqual([]);
    store.close();
  } finally {
    for (const folder of [library, data]) rmSync(folder, { recursive: true, force: true });
  }
});
