import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FromTrainer, ToTrainer } from '../../../common/protocol/trainer.ts';

/**
 * A trainer process that misbehaves in the way its first argument names; the second is a file to which it writes every
 * line it is sent. Ends with its input unless told otherwise.
 */
const [scenario = '', log = ''] = process.argv.slice(2);
const raw = (text: string): void => void process.stdout.write(text);
const complain = (text: string): void => void process.stderr.write(`${text}\n`);
const say = (event: FromTrainer): void => raw(`${JSON.stringify(event)}\n`);
const hello = (protocol = 1): void =>
  raw(`${JSON.stringify({ kind: 'hello', protocol, pid: process.pid, capabilities })}\n`);
const capabilities = {
  ...{ python: '3', torch: '2', transformers: '5', peft: '0', device: 'cpu: fake' },
  ...{ deviceBytes: 1, threads: 1, fastKernels: false },
};
const step = (number: number): FromTrainer => ({
  kind: 'step',
  step: number,
  ...{ loss: 1, learningRate: 1e-4, gradNorm: 1, windows: [0], tokens: 8, labelledTokens: 4, seconds: 0.01 },
  peakBytes: 1,
});
const started: FromTrainer = { kind: 'started', fromStep: 0, adaptedModules: 1, orderSha256: 'a'.repeat(64) };
const finished: FromTrainer = { kind: 'done', state: 'finished', step: 2, message: 'done' };

let stopAfterStep = false;
let stopNow = false;

const afterOrder: Record<string, (order: ToTrainer) => unknown> = {
  good: () => {
    complain('loading weights');
    say({ kind: 'log', level: 'warn', message: 'slow kernels', fields: { missing: 'fla' } });
    for (const event of [started, step(1), { ...step(2), message: 'ü'.repeat(10) } as FromTrainer]) say(event);
    say({ kind: 'checkpoint', step: 2, folder: '/out/step-000002', bytes: 10, adapterSha256: 'b'.repeat(64) });
    say(finished);
  },
  split: async () => {
    const bytes = Buffer.from(`${JSON.stringify({ ...finished, message: 'grün' })}\n`);
    const cut = bytes.indexOf('ü') + 1; // between the two bytes of a character
    process.stdout.write(bytes.subarray(0, cut));
    await sleep(50);
    process.stdout.write(bytes.subarray(cut));
  },
  garbage: () => raw(`Traceback (most recent call last): ${'x'.repeat(1000)}\n`),
  'not-an-event': () => raw('{"kind":"step","step":"two"}\n'),
  huge: () => raw('y'.repeat(100_000)),
  silent: () => undefined,
  'exits-3': () => {
    say(started);
    complain('Traceback: the first line');
    complain('ValueError: the last line');
    process.exitCode = 3;
    process.stdin.destroy();
  },
  killed: () => process.kill(process.pid, 'SIGKILL'),
  'out-of-memory': () =>
    say({
      kind: 'error',
      error: { code: 'prerequisite', message: 'Training ran out of memory.', details: { needed: 2 }, cause: 'CUDA' },
    }),
  'wrong-answer': () => say({ kind: 'merged', output: '/out', sha256: 'c'.repeat(64) }),
  late: () => {
    say(finished);
    raw('Bye!\n');
    say(step(9));
  },
  drains: async () => {
    say(started);
    for (let number = 1; !stopAfterStep; number++) {
      say(step(number));
      await sleep(20);
    }
    say({ kind: 'done', state: 'stopped', step: 5, message: 'as asked' });
  },
  obedient: async () => {
    say(started);
    while (!stopNow) await sleep(10);
    say({ kind: 'done', state: 'stopped', step: 0, message: 'stopped' });
  },
  /** holds on when its input ends, with a child in its group that would outlive it */
  stubborn: () => {
    spawn('bash', ['-c', 'sleep 300; true', log], { stdio: 'ignore' });
    setInterval(() => undefined, 1000);
    say(started);
  },
  plans: (order) => say({ kind: 'plan', plan: planFor(order) }),
};

function planFor(order: ToTrainer) {
  const counts = {
    parameters: 1,
    trainable: 1,
    adaptedModules: 1,
    weightsBytes: 1,
    adapterBytes: 1,
    activationsBytes: 1,
  };
  const longestWindow = order.kind === 'plan' ? order.order.recipe.rank : 1;
  const bytes = { neededBytes: 2, freeBytes: 1, fits: false };
  return { ...counts, ...bytes, longestWindow, floatingPointOperations: 1, hours: 2, assumption: 'none' };
}

if (scenario === 'mute') setInterval(() => undefined, 1000);
else if (scenario === 'stillborn') {
  complain("ModuleNotFoundError: No module named 'torch'");
  process.exit(1);
} else hello(scenario === 'other-protocol' ? 7 : 1);

createInterface({ input: process.stdin }).on('line', (line) => {
  if (log !== '') appendFileSync(log, `${line}\n`);
  const message = JSON.parse(line) as ToTrainer;
  if (message.kind === 'stop-after-step') stopAfterStep = true;
  else if (message.kind === 'stop-now') stopNow = true;
  else void afterOrder[scenario]?.(message);
});
