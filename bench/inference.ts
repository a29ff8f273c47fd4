import { availableParallelism } from 'node:os';
import { silentLogger } from '../main/common/base/logger.ts';
import { type LoadedModel, loadServedModel } from '../main/inference/model/load.ts';
import { smolLm2Model } from '../main/inference/testing/smollm2.ts';
import { tinyHybridModel } from '../main/inference/testing/tiny-hybrid.ts';
import { measureThroughput } from './inference-throughput.ts';
import { measureTraces } from './inference-traces.ts';

/** About two minutes on two idle cores. */
const load = (path: string, id: string, contextSize: number, sequences: number): Promise<LoadedModel> =>
  loadServedModel(
    { path, sha256: '', adapter: null, model: { id, contextSize, sequences, gpu: 'auto', kvType: 'f16' } },
    { logger: silentLogger },
  );

async function measure<T>(model: LoadedModel, what: (model: LoadedModel) => Promise<T>): Promise<T> {
  try {
    return await what(model);
  } finally {
    await model.dispose();
  }
}

const smol = await smolLm2Model();
const started = performance.now();
let device = '';
const throughput = await measure(await load(smol, 'SmolLM2-135M', 1024, 8), (model) => {
  device = model.info.device;
  return measureThroughput(model);
});
const traces = {
  // Four sequences for two teams of an orchestrator and changing workers: fewer than there are conversations.
  attention: await measure(await load(smol, 'SmolLM2-135M', 2048, 4), measureTraces),
  hybrid: await measure(await load(await tinyHybridModel(), 'tiny hybrid', 2048, 4), measureTraces),
};
console.log(
  JSON.stringify(
    {
      bench: 'inference',
      model: 'SmolLM2-135M-Instruct Q4_1',
      device,
      cores: availableParallelism(),
      workerPool: process.env.UV_THREADPOOL_SIZE ?? 'default',
      seconds: Math.round((performance.now() - started) / 1000),
      throughput,
      traces,
    },
    null,
    2,
  ),
);
