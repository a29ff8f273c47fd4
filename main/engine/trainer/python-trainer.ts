import { join } from 'node:path';
import { cancelled, fromErrorData, MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { Capabilities, ToTrainer, TrainOrder } from '../../common/protocol/trainer.ts';
import { projectRoot } from '../../node/project-root.ts';
import { memoryReleased } from '../lease/memory-released.ts';
import { Sidecar, type SidecarCommand, type SidecarEvent } from './sidecar.ts';
import type { TrainerEngine, TrainOptions } from './trainer-engine.ts';
import { trainerEnvironment } from './trainer-process-environment.ts';

/** Longest silences in milliseconds; a process that has ended is noticed at once, whatever they are. */
export interface TrainerLimits {
  /** until it says hello: Python imports torch, from a cold disk */
  readonly helloMs: number;
  /** between two events. Loading 54 GB, validating a thousand windows and a step on a slow machine are all silent */
  readonly silenceMs: number;
  /** from the request to stop until it is killed */
  readonly stopMs: number;
  /** how often it is looked whether training shall end after its step */
  readonly drainPollMs: number;
  readonly lineBytes: number;
}
const defaultLimits: TrainerLimits = {
  helloMs: 600_000,
  silenceMs: 6 * 3_600_000,
  stopMs: 10_000,
  drainPollMs: 500,
  lineBytes: 4 * 1024 * 1024,
};
/** Once steps are known, silence is measured by them: validation takes many steps' time, and never this many. */
const silentSteps = 100;
const leastSilenceMs = 1_800_000;

export interface PythonTrainerOptions {
  /** of an environment with the trainer's packages */
  readonly python: string;
  readonly logger: Logger;
  readonly limits?: Partial<TrainerLimits>;
  /** for tests: what to start instead */
  readonly command?: SidecarCommand;
}

/** The trainer as `python -m trainer serve` of native/trainer: one process for every call. */
export function createPythonTrainer(options: PythonTrainerOptions): TrainerEngine {
  const parts: Parts = {
    logger: options.logger,
    limits: { ...defaultLimits, ...options.limits },
    command: options.command ?? {
      program: options.python,
      args: ['-m', 'trainer', 'serve'],
      // `-m` looks in the working folder first: nothing else can be taken for the package.
      cwd: join(projectRoot, 'native'),
      env: trainerEnvironment(process.env),
    },
  };
  const single =
    <K extends Answer['kind'], O>(kind: OrderKind, answer: K, what: string) =>
    (order: O, signal: AbortSignal): Promise<Extract<Answer, { kind: K }>> =>
      withSidecar(parts, signal, (sidecar) => {
        sidecar.send({ kind, order } as ToTrainer);
        return awaitAnswer(sidecar, { answer, what, silenceMs: parts.limits.silenceMs });
      });
  const plan = single<'plan', TrainOrder>('plan', 'plan', 'plan the training');
  return {
    capabilities: (signal) => withSidecar(parts, signal, (_sidecar, capabilities) => Promise.resolve(capabilities)),
    plan: async (order, signal) => (await plan(order, signal)).plan,
    train: (order, how) => trainWith(parts, order, how),
    score: single('score', 'scored', 'score the prompts'),
    merge: single('merge', 'merged', 'merge the adapter'),
    convert: single('convert', 'converted', 'convert the adapter'),
    convertModel: single('convert-model', 'converted', 'convert the model'),
  };
}

interface Parts {
  readonly logger: Logger;
  readonly limits: TrainerLimits;
  readonly command: SidecarCommand;
}
type OrderKind = Extract<ToTrainer, { order: unknown }>['kind'];
type Answer = Extract<SidecarEvent, { kind: 'plan' | 'scored' | 'merged' | 'converted' }>;

/**
 * A sidecar for one piece of work: greeted before it, gone after it with its memory free, however the work ends. Aborting
 * asks it to stop now, and kills it when it does not.
 */
async function withSidecar<T>(
  { logger, limits, command }: Parts,
  signal: AbortSignal,
  work: (sidecar: Sidecar, capabilities: Capabilities) => Promise<T>,
): Promise<T> {
  const stopped = (): MassError => cancelled('The trainer was stopped; what its newest checkpoint holds is kept.');
  if (signal.aborted) throw stopped();
  const sidecar = new Sidecar({ command, logger, lineBytes: limits.lineBytes });
  const abort = (): void => {
    sidecar.send({ kind: 'stop-now' });
    sidecar.fail(stopped());
  };
  signal.addEventListener('abort', abort, { once: true });
  const end = async (): Promise<void> => {
    signal.removeEventListener('abort', abort);
    await sidecar.stop(limits.stopMs);
    await memoryReleased(sidecar.pid);
  };
  let result: T;
  try {
    result = await work(sidecar, await greet(sidecar, limits.helloMs));
  } catch (error) {
    // Memory that stays held is said by whoever needs it next; the first error is the one to know.
    await end().catch((late: unknown) => logger.log('warn', String(late)));
    throw signal.aborted ? stopped() : error;
  }
  await end();
  return result;
}

/** Errors: `prerequisite`, when it ends or is silent instead: its packages do not load. */
async function greet(sidecar: Sidecar, helloMs: number): Promise<Capabilities> {
  const hello = await sidecar.next(helloMs, 'start').catch((error: unknown) => {
    if (!(error instanceof MassError) || error.code !== 'infrastructure') throw error;
    const message = `The trainer does not start; look with mass doctor, and mend it with: mass doctor --repair. ${error.message}`;
    throw new MassError('prerequisite', message, error.details ? { details: error.details } : {});
  });
  if (hello.kind === 'error') throw fromErrorData(hello.error);
  if (hello.kind !== 'hello') throw unexpected(hello, 'start');
  return hello.capabilities;
}

async function awaitAnswer<K extends Answer['kind']>(
  sidecar: Sidecar,
  { answer, what, silenceMs }: { answer: K; what: string; silenceMs: number },
): Promise<Extract<Answer, { kind: K }>> {
  const event = await sidecar.next(silenceMs, what);
  if (event.kind === 'error') throw fromErrorData(event.error);
  if (event.kind !== answer) throw unexpected(event, what);
  return event as Extract<Answer, { kind: K }>;
}

function trainWith(parts: Parts, order: TrainOrder, how: TrainOptions): ReturnType<TrainerEngine['train']> {
  const { limits } = parts;
  return withSidecar(parts, how.signal, async (sidecar) => {
    sidecar.send({ kind: 'start', order });
    let asked = false;
    const drain = setInterval(() => {
      if (asked || !how.draining()) return;
      asked = true;
      sidecar.send({ kind: 'stop-after-step' });
    }, limits.drainPollMs);
    try {
      let slowest = 0;
      for (;;) {
        const silenceMs = slowest === 0 ? limits.silenceMs : Math.max(leastSilenceMs, silentSteps * slowest * 1000);
        const event = await sidecar.next(Math.min(silenceMs, limits.silenceMs), 'train');
        if (event.kind === 'done') return event;
        if (event.kind === 'error') throw fromErrorData(event.error);
        if (event.kind === 'step') slowest = Math.max(slowest, event.seconds);
        if (isTrainEvent(event)) how.onEvent(event);
        else throw unexpected(event, 'train');
      }
    } finally {
      clearInterval(drain);
    }
  });
}

type TrainEvent = Parameters<TrainOptions['onEvent']>[0];
const isTrainEvent = (event: SidecarEvent): event is TrainEvent =>
  ['started', 'step', 'validation', 'checkpoint'].includes(event.kind);

const unexpected = ({ kind }: SidecarEvent, what: string): MassError =>
  new MassError('infrastructure', `The trainer answered "${kind}" while it was to ${what}; run the stage again.`);
