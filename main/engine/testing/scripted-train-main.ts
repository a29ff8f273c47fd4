import { silentLogger } from '../../common/base/logger.ts';
import type { StageName } from '../../common/domain/events.ts';
import { createEngine } from '../engine.ts';
import { openStore } from '../store/store.ts';
import { registerScriptedModel, scriptedConfig, scriptedWorld } from './scripted-world.ts';

/**
 * Stages of a cycle over a scripted model and trainer as a process of its own, so that a test can kill it: `node ... DATA
 * LIBRARY STAGES`. Prints each step before it is trained, and the run's state when it ends.
 */
const [dataFolder = '', library = '', stages = ''] = process.argv.slice(2);
const seeding = openStore(dataFolder);
registerScriptedModel(seeding);
seeding.close();
const beforeStep = (step: number): void => void process.stdout.write(`step ${step}\n`);
const engine = await createEngine({
  dataFolder,
  version: 'test',
  logger: silentLogger,
  world: scriptedWorld({ trainer: { beforeStep } }),
});
const context = { signal: new AbortController().signal, progress: () => undefined };
const config = {
  ...scriptedConfig(library),
  search: { updates: 0, callTokens: 4000 },
  gates: { beforeTrain: false },
  train: { steps: 30, windowsPerStep: 2, checkpointEvery: 4, validateEvery: 6 },
};
await engine.handlers['experiment.create']({ name: 'cycle', config }, context);
const order = { name: 'cycle', stages: stages.split(',') as StageName[] };
const { runId } = await engine.handlers['run.start'](order, context);
const end = await engine.handlers['run.wait']({ runId }, context);
process.stdout.write(`${end.state} ${end.message}\n`);
await engine.shutdown('now');
process.exit(end.state === 'done' ? 0 : 1);
