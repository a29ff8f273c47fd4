import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { newId } from './ids.ts';

/** Replaces `path` in one step: a reader sees the old text or the new one, also after a power cut. */
export function writeFileAtomic(path: string, text: string, mode = 0o644): void {
  const temporary = `${path}.${newId('tmp')}`;
  try {
    const file = openSync(temporary, 'wx', mode);
    try {
      writeSync(file, text);
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
