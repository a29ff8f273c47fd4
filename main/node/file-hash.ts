import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';

/**
 * Feeds bytes [0, end) of a file to `hash` in chunks, so that a file of any size costs constant memory.
 * Rejects with the AbortError of `signal` or the error of the file system.
 */
export async function hashInto(
  hash: Hash,
  path: string | Buffer,
  options: { end?: number; signal?: AbortSignal; onBytes?: (count: number) => void } = {},
): Promise<void> {
  if (options.end === 0) return;
  const stream = createReadStream(path, {
    highWaterMark: 1 << 20,
    ...(options.end === undefined ? {} : { end: options.end - 1 }),
    ...(options.signal ? { signal: options.signal } : {}),
  });
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    hash.update(chunk);
    options.onBytes?.(chunk.length);
  }
}

/** Lower-case hex sha256 of a file. */
export async function sha256File(
  path: string | Buffer,
  options: { signal?: AbortSignal; onBytes?: (count: number) => void } = {},
): Promise<string> {
  const hash = createHash('sha256');
  await hashInto(hash, path, options);
  return hash.digest('hex');
}
