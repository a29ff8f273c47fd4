import { createHash } from 'node:crypto';
import { constants, type FileHandle, open } from 'node:fs/promises';
import { PNG_HEADER_BYTES, pngSize } from './png.ts';

/** Bytes of a text file kept in a bundle: the first and, of a longer file, the last. */
export const HEAD_BYTES = 96 * 1024;
export const TAIL_BYTES = 32 * 1024;
/** Files above this are listed without a hash. */
export const HASH_BYTES = 64 * 1024 * 1024;

export interface FileReading {
  readonly bytes: number;
  readonly sha256: string | null;
  /** null: binary */
  readonly text: { readonly head: string; readonly tail: string; readonly unreadBytes: number } | null;
  readonly image: { readonly width: number; readonly height: number } | null;
}

/**
 * Reads a regular file within bounds. Symbolic links are refused by the kernel (O_NOFOLLOW); a pipe or device cannot
 * block (O_NONBLOCK). Returns null for what is no regular file or cannot be opened.
 */
export async function readBounded(path: Buffer): Promise<FileReading | null> {
  return await withRegularFile(path, async (file, size) => {
    const head = await readRange(file, 0, HEAD_BYTES + TAIL_BYTES);
    const sha256 = size > HASH_BYTES ? null : await hashBytes(file, size);
    const image = pngSize(head.subarray(0, PNG_HEADER_BYTES));
    const base = { bytes: size, sha256, image };
    if (image !== null || looksBinary(head)) return { ...base, text: null };
    if (size <= HEAD_BYTES + TAIL_BYTES) return { ...base, text: { head: decode(head), tail: '', unreadBytes: 0 } };
    const tail = await readRange(file, size - TAIL_BYTES, TAIL_BYTES);
    const text = { head: decode(head.subarray(0, HEAD_BYTES)), tail: decode(tail) };
    return { ...base, text: { ...text, unreadBytes: size - HEAD_BYTES - TAIL_BYTES } };
  });
}

/** The first `maxBytes` of a regular file as text; null for what is none. Bytes that are not UTF-8 become U+FFFD. */
export const readText = (
  path: Buffer,
  maxBytes: number,
): Promise<{ readonly bytes: number; readonly text: string; readonly complete: boolean } | null> =>
  withRegularFile(path, async (file, size) => ({
    bytes: size,
    text: decode(await readRange(file, 0, Math.min(size, maxBytes))),
    complete: size <= maxBytes,
  }));

/** Size and sha256 of a regular file; null for what is none. A file of another size than expected is not hashed. */
export const hashExpected = (
  path: Buffer,
  expectedBytes: number,
): Promise<{ readonly bytes: number; readonly sha256: string | null } | null> =>
  withRegularFile(path, async (file, size) => ({
    bytes: size,
    sha256: size === expectedBytes ? await hashBytes(file, size) : null,
  }));

async function withRegularFile<T>(
  path: Buffer,
  use: (file: FileHandle, size: number) => Promise<T>,
): Promise<T | null> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null; // Unreadable is itself what there is to say.
  }
  try {
    const stat = await file.stat();
    return stat.isFile() ? await use(file, stat.size) : null;
  } finally {
    await file.close();
  }
}

async function readRange(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await file.read(buffer, filled, length - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}

async function hashBytes(file: FileHandle, size: number): Promise<string> {
  const hash = createHash('sha256');
  for (let position = 0; position < size; ) {
    const chunk = await readRange(file, position, Math.min(1 << 20, size - position));
    if (chunk.length === 0) break;
    hash.update(chunk);
    position += chunk.length;
  }
  return hash.digest('hex');
}

const decode = (bytes: Buffer): string => {
  // A range may begin or end inside a character; those partial bytes are dropped rather than shown as damage.
  let start = 0;
  while (start < 3 && start < bytes.length && ((bytes[start] ?? 0) & 0xc0) === 0x80) start++;
  return new TextDecoder('utf-8').decode(bytes.subarray(start), { stream: true });
};

/** A zero byte, or more than a tenth of the characters damaged under UTF-8. */
function looksBinary(bytes: Buffer): boolean {
  if (bytes.includes(0)) return true;
  const sample = decode(bytes.subarray(0, 8192));
  const damaged = sample.split('\ufffd').length - 1;
  return damaged * 10 > sample.length;
}
