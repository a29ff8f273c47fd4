import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ExperimentConfig } from '../../common/domain/config.ts';
import { openStore, type Store } from '../store/store.ts';
import { createGate } from './gates.ts';

let folder: string;
let store: Store;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-gates-'));
  store = openStore(folder);
  store.append({
    type: 'experiment.created',
    experimentId: 'ex_1',
    name: 'first',
    configJson: '{}',
    configHash: 'a'.repeat(64),
    massVersion: '0',
  });
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true });
});

const ask = (gates: { beforeTrain?: boolean } = {}, cycle = 1) =>
  createGate(
    { append: (...events) => void store.append(...events), gates: store.integrity.gates },
    {
      experimentId: 'ex_1',
      name: 'first',
      cycle,
      runId: 'run_1',
      config: ExperimentConfig.parse({ model: { id: 'm' }, tasks: { train: ['t'] }, gates }),
    },
  );
const decide = (decision: 'approved' | 'rejected', note = ''): void => {
  const gateId = store.integrity.gates('ex_1').findLast((gate) => gate.state === 'open')?.gateId ?? '';
  store.append({ type: 'gate.decided', gateId, experimentId: 'ex_1', decision, note, by: 'person' });
};
const states = () => store.integrity.gates('ex_1').map(({ kind, cycle, state }) => [kind, cycle, state]);

describe('a gate', () => {
  it('opens once however often it is asked, and is passed when approved', async () => {
    const question = { message: 'Training takes 9 hours.', details: { hours: 9 } };
    const stopped = { code: 'gate', message: 'Training takes 9 hours. Go on with: mass approve first before-train' };
    await expect(ask()('before-train', question)).rejects.toMatchObject(stopped);
    await expect(ask()('before-train', { message: 'Training takes 10 hours.' })).rejects.toMatchObject({
      code: 'gate',
    });
    expect(states()).toEqual([['before-train', 1, 'open']]);
    decide('approved');
    await expect(ask()('before-train', question)).resolves.toBeUndefined();
  });

  it('belongs to a cycle and a kind', async () => {
    await expect(ask()('before-train', { message: 'Look.' })).rejects.toThrow();
    decide('approved');
    await expect(ask()('before-register', { message: 'Look.' })).rejects.toThrow('Look.');
    await expect(ask({}, 2)('before-train', { message: 'Look.' })).rejects.toThrow('Look.');
  });

  it('that the configuration switched off leaves no trace', async () => {
    await expect(ask({ beforeTrain: false })('before-train', { message: 'Look.' })).resolves.toBeUndefined();
    expect(states()).toEqual([]);
  });

  it('covers what was shown and less, not more', async () => {
    const about = (...names: string[]) => ask()('on-findings', { message: 'Look.', about: names });
    await expect(about('a', 'b')).rejects.toThrow();
    decide('approved');
    await expect(about('b')).resolves.toBeUndefined();
    await expect(about('b', 'c')).rejects.toThrow('Look.');
    await expect(about('c')).rejects.toThrow('Look.');
    expect(states().map(([, , state]) => state)).toEqual(['approved', 'lifted', 'open']);
  });

  it('says who rejected it and how to take that back', async () => {
    await expect(ask()('before-train', { message: 'Look.' })).rejects.toThrow();
    decide('rejected', 'too dear');
    await expect(ask()('before-train', { message: 'Look.' })).rejects.toMatchObject({
      code: 'gate',
      message:
        'A person rejected the gate before-train ("too dear"); to go on after all: mass approve first before-train',
    });
  });
});
