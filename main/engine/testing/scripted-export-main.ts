import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { silentLogger } from '../../common/base/logger.ts';
import { createEngine } from '../engine.ts';
import { openStore } from '../store/store.ts';
import { createScriptedTrainer } from './scripted-trainer.ts';
import { registerScriptedModel, scriptedConfig, scriptedWorld } from './scripted-world.ts';

/**
 * A whole scripted cycle, to the registered L1, that kills itself with -9 the first time it comes to `moment`:
 * `node ... DATA LIBRARY [MOMENT]`. A moment is an event's tag (just committed), or "converted", "scored", "placed": a file
 * is written, and no event says so yet. Every moment kills once, so that the next start goes past it.
 */
const [dataFolder = '', library = '', moment = ''] = process.argv.slice(2);
const spent = join(dataFolder, `killed-at-${moment}`);

function dieAt(name: string): void {
  if (name !== moment || existsSync(spent)) return;
  writeFileSync(spent, '');
  process.kill(process.pid, 'SIGKILL');
}

const seeding = openStore(dataFolder);
registerScriptedModel(seeding);
seeding.close();
const world = scriptedWorld();
const trainer = createScriptedTrainer();
const engine = await createEngine({
  dataFolder,
  version: 'test',
  logger: silentLogger,
  world: {
    ...world,
    openTrainer: () =>
      Promise.resolve({
        ...trainer,
        convert: async (order, signal) => {
          const converted = await trainer.convert(order, signal);
          dieAt('converted');
          return converted;
        },
      }),
    scoreServed: async (target, store, request) => {
      if (existsSync(join(dataFolder, 'adapters'))) dieAt('placed');
      const scored = await world.scoreServed(target, store, request);
      dieAt('scored');
      return scored;
    },
  },
});
engine.onEvents((events) => {
  for (const { event } of events) dieAt(event.type);
});
const context = { signal: new AbortController().signal, progress: () => undefined };
const config = {
  ...scriptedConfig(library),
  tasks: { library, train: ['one'], test: [] },
  search: { updates: 0, callTokens: 4000, requireProvenWin: false },
  gates: { beforeTrain: false, beforeRegister: false, onFindings: false },
  integrity: { quarantine: false },
  train: { rank: 4, steps: 6, checkpointEvery: 2, validateEvery: 2 },
};
await engine.handlers['experiment.create']({ name: 'cycle', config }, context);
const { runId } = await engine.handlers['run.start'](
  { name: 'cycle', stages: ['search', 'collect', 'rank', 'select', 'render', 'train', 'export'] },
  context,
);
const end = await engine.handlers['run.wait']({ runId }, context);
process.stdout.write(`${end.state} ${end.message}\n`);
await engine.shutdown('now');
process.exit(end.state === 'done' ? 0 : 1);
