import { silentLogger } from '../../common/base/logger.ts';
import { createEngine } from '../engine.ts';
import { openStore } from '../store/store.ts';
import { registerScriptedModel, scriptedConfig, scriptedWorld } from './scripted-world.ts';

/**
 * A whole cycle over a scripted model as a process of its own, so that a test can kill it: `node ... DATA LIBRARY`.
 * Prints the run's state when it ends.
 */
const [dataFolder = '', library = ''] = process.argv.slice(2);
const seeding = openStore(dataFolder);
registerScriptedModel(seeding);
seeding.close();
const engine = await createEngine({
  dataFolder,
  version: 'test',
  logger: silentLogger,
  world: scriptedWorld({ latencyMs: 5 }),
});
const context = { signal: new AbortController().signal, progress: () => undefined };
await engine.handlers['experiment.create']({ name: 'cycle', config: scriptedConfig(library) }, context);
const { runId } = await engine.handlers['run.start'](
  { name: 'cycle', stages: ['search', 'collect', 'rank', 'select'] },
  context,
);
process.stdout.write('started\n');
const end = await engine.handlers['run.wait']({ runId }, context);
process.stdout.write(`${end.state} ${end.message}\n`);
await engine.shutdown('now');
process.exit(end.state === 'done' ? 0 : 1);
