import { createEngine } from '../engine.ts';
import { runEngineProcess } from '../process/run-engine.ts';
import { openStore } from '../store/store.ts';
import { teamWithFindings } from './scripted-findings.ts';
import { registerScriptedModel, scriptedWorld } from './scripted-world.ts';

/** An engine process over a scripted model whose best run of task one leaves a placeholder in its report. */
await runEngineProcess(process.argv.slice(2), {
  version: '0.0.0-scripted',
  createEngine: (options) => {
    const store = openStore(options.dataFolder);
    registerScriptedModel(store);
    store.close();
    return createEngine({ ...options, world: scriptedWorld({ answer: teamWithFindings({ one: [4] }) }) });
  },
});
