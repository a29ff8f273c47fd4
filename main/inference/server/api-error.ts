import type { z } from 'zod';
import { isCancelled, MassError } from '../../common/base/errors.ts';

export interface ApiErrorOptions {
  readonly code?: string | null;
  /** the field of the request that is wrong, e.g. `messages[2].role` */
  readonly param?: string | null;
  /** further fields of the error object, e.g. both numbers of a context overflow */
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** An error as the OpenAI surface words it: a status and `{error: {message, type, param, code}}`. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string | null;
  readonly param: string | null;
  readonly extra: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, message: string, options: ApiErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'ApiError';
    this.status = status;
    this.code = options.code ?? null;
    this.param = options.param ?? null;
    this.extra = options.extra ?? {};
    this.headers = options.headers ?? {};
  }

  get body(): { error: Record<string, unknown> } {
    return {
      error: {
        message: this.message,
        type: errorType(this.status),
        param: this.param,
        code: this.code,
        ...this.extra,
      },
    };
  }
}

function errorType(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 404) return 'not_found_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

export const badRequest = (message: string, options: ApiErrorOptions = {}): ApiError =>
  new ApiError(400, message, { code: 'invalid_value', ...options });

/** Status codes matter: agents retry 5xx for minutes and give up at once on 4xx. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (isCancelled(error)) {
    return new ApiError(503, 'The request was cancelled because the inference process is stopping.', {
      code: 'cancelled',
      cause: error,
    });
  }
  if (error instanceof MassError) {
    if (error.code === 'invalid_input' || error.code === 'usage') return fromInvalidInput(error);
    return new ApiError(500, error.message, { code: error.code, cause: error });
  }
  const message = error instanceof Error ? error.message : String(error);
  return new ApiError(500, `The inference engine failed: ${message}`, { code: 'engine_failure', cause: error });
}

function fromInvalidInput(error: MassError): ApiError {
  const { reason, promptTokens, contextTokens } = error.details ?? {};
  if (reason === 'context_length_exceeded') {
    return contextOverflow(Number(promptTokens ?? 0), Number(contextTokens ?? 0));
  }
  return badRequest(error.message, { code: typeof reason === 'string' ? reason : 'invalid_value', cause: error });
}

/** `atLeast`: counting stopped early because the text is far too long. */
export function contextOverflow(promptTokens: number, contextTokens: number, atLeast = false): ApiError {
  return badRequest(
    `This model's context holds ${contextTokens} tokens, but the messages are ${atLeast ? 'at least ' : ''}${promptTokens} tokens, which leaves no room for an answer. Shorten the messages.`,
    {
      code: 'context_length_exceeded',
      param: 'messages',
      extra: { prompt_tokens: promptTokens, context_tokens: contextTokens },
    },
  );
}

/** The first problem zod found, naming its field in OpenAI's spelling. */
export function fromZodError(error: z.ZodError): ApiError {
  const issue = error.issues[0];
  const param = issue === undefined ? '' : pathText(issue.path);
  const where = param === '' ? 'The request body' : `'${param}'`;
  return badRequest(`${where} is wrong: ${issue?.message ?? 'it does not parse'}.`, {
    param: param === '' ? null : param,
    cause: error,
  });
}

function pathText(path: readonly PropertyKey[]): string {
  let text = '';
  for (const key of path) {
    if (typeof key === 'number') text += `[${key}]`;
    else text += text === '' ? String(key) : `.${String(key)}`;
  }
  return text;
}
