import { createChatFormat } from './chat/create-chat-format.ts';
import { MemoryLedger } from './chat/ledger.ts';
import { canonicalMessageHash } from './chat/message-hash.ts';
import { probeDevice } from './model/device.ts';
import { loadServedModel, planServedModel } from './model/load.ts';
import { runInferenceProcess } from './run-inference-process.ts';

await runInferenceProcess({
  load: async (order, options) => {
    const model = await loadServedModel(order, options);
    return { model, plan: model.plan };
  },
  plan: planServedModel,
  probe: probeDevice,
  createFormat: createChatFormat,
  createLedger: () => new MemoryLedger(),
  hashMessage: canonicalMessageHash,
});
