import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { newId } from './ids.ts';

/** Replaces `path` in one step: a reader sees the old content or the new one, also after a power cut. */
export function writeFileAtomic(path: string, content: string | Uint8Array, mode = 0o644): void {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  const temporary = `${path}.${newId('tmp')}`;
  try {
    const file = openSync(temporary, 'wx', mode);
    try {
      // A nearly full disk takes a part and says so by the count.
      for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}
