import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { WindowManifest, WindowRecord, windowFiles } from '../../common/domain/window-set.ts';
import { sha256 } from '../../node/hashing.ts';

export interface ReadWindow extends WindowRecord {
  readonly ids: readonly number[];
}

/** A window set as the trainer reads it; fails when a hash, a count or the cover of the blocks is wrong. */
export function readWindowSet(folder: string): { manifest: WindowManifest; windows: ReadWindow[] } {
  const manifest = WindowManifest.parse(JSON.parse(readFileSync(join(folder, windowFiles.manifest), 'utf8')));
  const bytes = readFileSync(join(folder, windowFiles.tokens));
  const lines = readFileSync(join(folder, windowFiles.windows));
  if (sha256(bytes) !== manifest.files.tokens || sha256(lines) !== manifest.files.windows)
    throw new Error('The files are not those of the manifest.');
  const windows = lines
    .toString('utf8')
    .trimEnd()
    .split('\n')
    .map((line) => readWindow(WindowRecord.parse(JSON.parse(line)), bytes));
  const tokens = windows.reduce((sum, window) => sum + window.length, 0);
  if (tokens * 4 !== bytes.length || tokens !== manifest.total.tokens)
    throw new Error('Tokens are missing or left over.');
  return { manifest, windows };
}

function readWindow(record: WindowRecord, bytes: Buffer): ReadWindow {
  const ids = Array.from({ length: record.length }, (_, i) => bytes.readUInt32LE((record.offset + i) * 4));
  let at = 0;
  let labelled = 0;
  for (const block of record.blocks) {
    if (block.start !== at || block.end <= at) throw new Error(`Block at ${block.start} does not begin at ${at}.`);
    at = block.end;
    if (block.part === 'loss') labelled += block.end - block.start;
  }
  if (at !== record.length || labelled !== record.labelledTokens)
    throw new Error('The blocks do not cover the window.');
  return { ...record, ids };
}
