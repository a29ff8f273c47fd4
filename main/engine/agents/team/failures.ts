import { MassError } from '../../../common/base/errors.ts';
import type { Episode } from './episode.ts';

/**
 * Errors of a file tool that say what the model did wrong. Codes of the machine's trouble (`infrastructure`,
 * `prerequisite`, `internal`) are never shown to it as its own.
 */
export function isModelMistake(error: unknown): error is MassError {
  return error instanceof MassError && ['invalid_input', 'not_found', 'conflict', 'usage'].includes(error.code);
}

/** Prompt size when the endpoint says that a conversation no longer fits its context; `null` for any other error. */
export function contextOverflow(error: unknown): { readonly promptTokens: number | null } | null {
  if (!(error instanceof MassError) || error.details?.reason !== 'context_length_exceeded') return null;
  const tokens = error.details.promptTokens;
  return { promptTokens: typeof tokens === 'number' ? tokens : null };
}

/** What a port of the episode threw, as a MassError: an unknown error is the machine's trouble, not the model's. */
export function portFailure(error: unknown, port: 'model endpoint' | 'workspace'): MassError {
  if (error instanceof MassError) return error;
  return new MassError('infrastructure', `The ${port} failed during an episode; the attempt can be retried.`, {
    cause: error,
  });
}

/** Runs work that counts tokens. @throws MassError cancelled when the attempt was, else what the endpoint threw */
export async function counting<T>(episode: Episode, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    episode.stopped();
    throw portFailure(error, 'model endpoint');
  }
}
