import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { cancelled, type ErrorData, fromErrorData, MassError } from '../../common/base/errors.ts';
import type { ParityReport } from '../../common/domain/parity-report.ts';
import type { ParityPrompt } from './parity-prompts.ts';

/** Files of float32 little-endian log-probabilities, [prompts x lastPositions, vocabulary]. */
export interface ScoreFile {
  readonly path: string;
  readonly vocabulary: number;
}

export interface ScoreFiles {
  readonly trainerBase: ScoreFile;
  readonly trainerAdapted: ScoreFile;
  readonly servedBase: ScoreFile;
  readonly servedAdapted: ScoreFile;
}

export interface ComparisonOrder {
  readonly files: ScoreFiles;
  readonly prompts: readonly ParityPrompt[];
  readonly lastPositions: number;
}

export type ComparisonAnswer = { readonly report: ParityReport } | { readonly error: ErrorData };

const entry = fileURLToPath(new URL('./score-comparison-worker.ts', import.meta.url));

/**
 * What the four score files say of the adapter. In a thread of its own: with a vocabulary of 248,000 the files hold half a
 * gigabyte, and comparing them takes seconds in which the engine would answer nobody. Errors: those of `measureParity`.
 */
export async function compareScores(order: ComparisonOrder, signal: AbortSignal): Promise<ParityReport> {
  if (signal.aborted) throw cancelled('Comparing the scores was stopped.');
  const worker = new Worker(entry, { workerData: order });
  const abort = (): void => void worker.terminate();
  signal.addEventListener('abort', abort, { once: true });
  try {
    const answer = await new Promise<ComparisonAnswer>((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
      worker.once('exit', () => reject(new MassError('internal', 'Comparing the scores ended without an answer.')));
    });
    if ('error' in answer) throw fromErrorData(answer.error);
    return answer.report;
  } catch (error) {
    if (signal.aborted) throw cancelled('Comparing the scores was stopped.');
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
    await worker.terminate();
  }
}
