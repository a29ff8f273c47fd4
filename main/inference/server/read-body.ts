import type { IncomingMessage } from 'node:http';
import { ApiError, badRequest } from './api-error.ts';

/** A context of 262,144 tokens is about 1.5 MiB of JSON; parsing this much holds the event loop for well under 0.2 s. */
export const maxBodyBytes = 16 * 1024 * 1024;
/** What a sender may still push after its body was found too large, so that it can read the answer. */
const maxDiscardBytes = 256 * 1024 * 1024;

/** The parsed JSON of a request. Errors: ApiError 400 (type, encoding, syntax), 413 (too large). */
export async function readJsonBody(request: IncomingMessage, limit = maxBodyBytes): Promise<unknown> {
  const contentType = request.headers['content-type'] ?? '';
  if (!/^application\/json\s*(;|$)/i.test(contentType)) {
    throw badRequest(`Send the body as application/json, not ${contentType === '' ? 'without a type' : contentType}.`, {
      code: 'unsupported_content_type',
    });
  }
  const bytes = await readBytes(request, limit);
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) as unknown;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw badRequest(`The body is not JSON in UTF-8: ${reason}.`, { code: 'invalid_json', cause: error });
  }
}

async function readBytes(request: IncomingMessage, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size <= limit) chunks.push(chunk);
      else chunks.length = 0;
      if (size > maxDiscardBytes) break;
    }
  } catch (error) {
    throw badRequest('The body ended before it was complete.', { code: 'incomplete_body', cause: error });
  }
  if (size > limit) {
    throw new ApiError(413, `The body is larger than ${limit} bytes.`, {
      code: 'request_too_large',
      headers: { connection: 'close' },
    });
  }
  return Buffer.concat(chunks);
}

/** Throws when arrays and objects nest deeper than `limit`: recursive code further down must not run out of stack. */
export function checkDepth(value: unknown, limit = 128): void {
  const pending: { value: unknown; depth: number }[] = [{ value, depth: 0 }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (next.value === null || typeof next.value !== 'object') continue;
    if (next.depth >= limit) throw badRequest(`The body nests deeper than ${limit} levels.`, { code: 'too_deep' });
    for (const child of Object.values(next.value)) pending.push({ value: child, depth: next.depth + 1 });
  }
}
