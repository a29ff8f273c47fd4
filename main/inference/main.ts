import { createChatFormat } from './chat/create-chat-format.ts';
import { MemoryLedger } from './chat/ledger.ts';
import { canonicalMessageHash } from './chat/message-hash.ts';
import { loadServedModel } from './model/load.ts';
import { planMemory } from './model/memory-plan.ts';
import { runInferenceProcess } from './run-inference-process.ts';

await runInferenceProcess({
  load: async (order, { logger }) => {
    const plan = await planMemory(order);
    return { model: await loadServedModel(order, { logger }), plan };
  },
  plan: planMemory,
  createFormat: createChatFormat,
  createLedger: () => new MemoryLedger(),
  hashMessage: canonicalMessageHash,
});
