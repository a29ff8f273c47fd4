import { fromErrorData, MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { DeviceReport, MemoryPlan } from '../../common/domain/memory-plan.ts';
import type { FromInference, LoadOrder, ToInference } from '../../common/protocol/inference.ts';
import { ChildEnded, InferenceChild, inferenceEntry } from './inference-child.ts';
import { runsOnCpu } from './inference-environment.ts';
import { forwardLog } from './inference-process.ts';

interface AskOptions {
  readonly logger: Logger;
  readonly entry?: string;
}

const startMs = 30_000;
const answerMs = 120_000;
const endMs = 5000;

/** Memory that `order` would take, measured by a process of its own. Errors: as the process words them. */
export const planModel = ({ order, ...options }: AskOptions & { readonly order: LoadOrder }): Promise<MemoryPlan> =>
  askOnce(
    { ...options, cpu: runsOnCpu(order.model.gpu), question: { kind: 'plan', id: 1, order }, what: 'plan' },
    (message) => (message.kind === 'plan-result' ? { value: message.plan, error: message.error } : undefined),
  );

/** The device that llama.cpp uses here, and its memory. A driver that takes the process with it is `infrastructure`. */
export const probeDevice = (options: AskOptions): Promise<DeviceReport> =>
  askOnce(
    { ...options, cpu: runsOnCpu('auto'), question: { kind: 'probe', id: 1 }, what: 'look at the device' },
    (message) => (message.kind === 'probe-result' ? { value: message.device, error: message.error } : undefined),
  );

interface Question extends AskOptions {
  readonly cpu: boolean;
  readonly question: ToInference;
  /** completes "did not ... within" */
  readonly what: string;
}

type Answer<T> = { readonly value: T | null; readonly error: Parameters<typeof fromErrorData>[0] | null };

/** Starts an inference process, asks it one thing, and ends it. */
async function askOnce<T>(
  { logger, entry = inferenceEntry, cpu, question, what }: Question,
  pick: (message: FromInference) => Answer<T> | undefined,
): Promise<T> {
  const child = new InferenceChild({
    entry,
    socketPath: null,
    cpu,
    onMessage: (message) => forwardLog(logger, message),
    onLog: (level, message, fields) => logger.log(level, message, fields),
  });
  try {
    await child.next((message) => (message.kind === 'ready' ? true : undefined), 'start', startMs);
    const answer = child.next(pick, what, answerMs);
    child.send(question);
    const { value, error } = await answer;
    if (value === null) throw error === null ? new MassError('internal', 'No answer was given.') : fromErrorData(error);
    return value;
  } catch (error) {
    if (!(error instanceof ChildEnded)) throw error;
    throw new MassError('infrastructure', `The inference process ended while it was to ${what}: ${error.message}`);
  } finally {
    await child.stop(endMs);
  }
}
