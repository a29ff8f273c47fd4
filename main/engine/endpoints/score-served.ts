import { fromErrorData, MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { LoadOrder } from '../../common/protocol/inference.ts';
import { ChildEnded, InferenceChild, inferenceEntry } from './inference-child.ts';
import { runsOnCpu } from './inference-environment.ts';

export interface ScoreServedOptions {
  readonly order: LoadOrder;
  readonly prompts: readonly (readonly number[])[];
  /** positions scored per prompt, counted from its end */
  readonly lastPositions: number;
  /** a new file: float32 little-endian log-probabilities, [prompts x lastPositions, vocabulary] */
  readonly output: string;
  readonly logger: Logger;
  readonly signal?: AbortSignal;
  readonly entry?: string;
  readonly loadMs?: number;
  readonly scoreMs?: number;
}

/**
 * What the served model thinks comes next after fixed prompts, measured by an inference process of its own that ends
 * before this resolves. Errors: as the process words them; `infrastructure` when it ends or is silent; `cancelled`.
 */
export async function scoreServed(options: ScoreServedOptions): Promise<{ vocabulary: number; pid: number }> {
  const { order, prompts, lastPositions, output, logger, signal } = options;
  signal?.throwIfAborted();
  const child = new InferenceChild({
    entry: options.entry ?? inferenceEntry,
    socketPath: null,
    cpu: runsOnCpu(order.model.gpu),
    onMessage: (message) => {
      if (message.kind === 'log') logger.log(message.level, message.message, message.fields);
    },
    onLog: (level, message, fields) => logger.log(level, message, fields),
  });
  const abort = (): void => child.kill();
  signal?.addEventListener('abort', abort, { once: true });
  try {
    await child.next((message) => (message.kind === 'ready' ? true : undefined), 'start', 30_000);
    const loaded = child.next(
      (message) => (message.kind === 'loaded' || message.kind === 'load-failed' ? message : undefined),
      'load the model',
      options.loadMs ?? 1_800_000,
    );
    child.send({ kind: 'load', order });
    const outcome = await loaded;
    if (outcome.kind === 'load-failed') throw fromErrorData(outcome.error);
    const scored = child.next(
      (message) => (message.kind === 'score-result' ? message : undefined),
      'score the prompts',
      options.scoreMs ?? 3_600_000,
    );
    child.send({ kind: 'score', id: 1, prompts: prompts.map((ids) => [...ids]), lastPositions, output });
    const { vocabulary, error } = await scored;
    if (vocabulary === null)
      throw error === null ? new MassError('internal', 'Nothing was scored.') : fromErrorData(error);
    return { vocabulary, pid: child.pid };
  } catch (error) {
    if (signal?.aborted) throw new MassError('cancelled', 'Scoring was stopped.', { cause: error });
    if (!(error instanceof ChildEnded)) throw error;
    throw new MassError('infrastructure', `The inference process ended while it scored: ${error.message}`);
  } finally {
    signal?.removeEventListener('abort', abort);
    await child.stop(5000);
  }
}
