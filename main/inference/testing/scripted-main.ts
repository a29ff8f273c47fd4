import { existsSync, writeFileSync } from 'node:fs';
import type { MemoryPlan } from '../../common/domain/memory-plan.ts';
import type { LoadOrder } from '../../common/protocol/inference.ts';
import { runInferenceProcess } from '../run-inference-process.ts';
import { createMapLedger, createScriptedFormat, hashMessage } from './scripted-format.ts';
import { ScriptedModel } from './scripted-model.ts';

/**
 * The inference process with a scripted model, for tests of the supervisor. The model file's name says how it behaves:
 * `crash-on-load`, `fail-on-load`, `hang-on-load` or `slow-<ms per token>`; the answer echoes the last user message in
 * capitals in brackets (a long body of numbered words when the message is `long <n>`), and dies at the word `die`. At
 * `hang <file>` the process hangs until it is killed, unless the file is there, which it leaves.
 */
await runInferenceProcess({
  load: async (order) => {
    if (order.path.includes('crash-on-load')) process.kill(process.pid, 'SIGKILL');
    if (order.path.includes('hang-on-load')) await new Promise(() => undefined);
    if (order.path.includes('fail-on-load')) throw new TypeError('this file is not a model');
    const tokenMs = Number(/slow-(\d+)/.exec(order.path)?.[1] ?? 0);
    const { id, contextSize, sequences } = order.model;
    return {
      model: new ScriptedModel({ id, contextSize, sequences, tokenMs, answer: answerOf }),
      plan: planOf(order),
    };
  },
  plan: (order) => Promise.resolve(planOf(order)),
  probe: () => Promise.resolve({ device: 'scripted', onGpu: false, freeBytes: 10, totalBytes: 20, ramFreeBytes: 10 }),
  createFormat: createScriptedFormat,
  createLedger: createMapLedger,
  hashMessage,
});

function answerOf(prompt: string): string {
  const asked = prompt.split('<|im_start|>user\n').at(-1)?.split('<|im_end|>')[0] ?? '';
  if (asked === 'die') process.kill(process.pid, 'SIGKILL');
  const hang = /^hang (.+)/.exec(asked)?.[1];
  if (hang !== undefined && !existsSync(hang)) {
    writeFileSync(hang, '');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  const long = /^long (\d+)/.exec(asked)?.[1];
  if (long === undefined) return `[${asked.toUpperCase()}]`;
  return Array.from({ length: Number(long) }, (_, i) => `${asked.length + i} wörd`).join(' ');
}

function planOf(order: LoadOrder): MemoryPlan {
  const { contextSize, sequences, kvType } = order.model;
  return {
    fits: true,
    device: 'scripted',
    contextSize,
    sequences,
    kvType,
    gpuLayers: 0,
    parts: { weights: 1, kv: 1, compute: 1, checkpoints: 1, adapter: 0, slack: 1 },
    neededBytes: 5,
    freeBytes: 10,
    totalBytes: 20,
    marginBytes: 5,
    nearest: null,
  };
}
