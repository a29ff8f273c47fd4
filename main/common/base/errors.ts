/**
 * Errors are data at borders. `code` is for programs, `message` is one sentence that tells a person what to do,
 * `details` holds numbers, `cause` the inner error.
 */
export type ErrorCode =
  | 'usage' // the caller's words are wrong (exit code 2)
  | 'not_found'
  | 'conflict' // e.g. a frozen configuration that differs, a second engine
  | 'invalid_input' // a file, a model output or a payload that does not parse
  | 'prerequisite' // something this machine lacks: bubblewrap, Python, memory, disk
  | 'infrastructure' // endpoint, network, process or disk trouble: never a model's result
  | 'cancelled'
  | 'gate' // stopped for a person (exit code 3)
  | 'internal';

export interface ErrorData {
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: Record<string, unknown> | undefined;
  readonly cause?: string | undefined;
}

export class MassError extends Error {
  readonly code: ErrorCode;
  readonly details: Record<string, unknown> | undefined;

  constructor(code: ErrorCode, message: string, options: { details?: Record<string, unknown>; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'MassError';
    this.code = code;
    this.details = options.details;
  }
}

export const cancelled = (what = 'The operation was cancelled.'): MassError => new MassError('cancelled', what);

/** Innermost message first reached by following `cause`; "" when there is none. */
export function rootCause(error: unknown): string {
  let inner: unknown = error;
  while (inner instanceof Error && inner.cause !== undefined) inner = inner.cause;
  if (inner === error) return '';
  return inner instanceof Error ? inner.message : String(inner);
}

export function toErrorData(error: unknown): ErrorData {
  const cause = rootCause(error);
  if (error instanceof MassError) {
    return {
      code: error.code,
      message: error.message,
      ...(error.details ? { details: error.details } : {}),
      ...(cause ? { cause } : {}),
    };
  }
  if (error instanceof Error && error.name === 'AbortError') return { code: 'cancelled', message: error.message };
  const message = error instanceof Error ? error.message : String(error);
  return { code: 'internal', message, ...(cause ? { cause } : {}) };
}

export function fromErrorData(data: ErrorData): MassError {
  return new MassError(data.code, data.message, {
    ...(data.details ? { details: data.details } : {}),
    ...(data.cause ? { cause: new Error(data.cause) } : {}),
  });
}

export const isCancelled = (error: unknown): boolean =>
  (error instanceof MassError && error.code === 'cancelled') || (error instanceof Error && error.name === 'AbortError');
