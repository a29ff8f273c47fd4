import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { WindowManifest, WindowRecord, windowFiles } from '../../common/domain/window-set.ts';
import { sha256 } from '../../node/hashing.ts';

/** A window set where the store says it is. */
export interface PlacedWindowSet {
  /** absolute */
  readonly folder: string;
  readonly manifestHash: string;
}

/** Errors: `not_found` when the folder is gone, `conflict` when it is not what was rendered. */
export async function readManifest(set: PlacedWindowSet): Promise<WindowManifest> {
  const text = await readFile(join(set.folder, windowFiles.manifest)).catch((cause: unknown) => {
    throw gone(set, cause);
  });
  if (sha256(text) !== set.manifestHash) throw changed(set);
  return WindowManifest.parse(JSON.parse(text.toString('utf8')));
}

/** The windows of an episode, in order. Reads the whole file of records and checks its hash. Errors: as `readManifest`. */
export async function recordsOf(set: PlacedWindowSet, episodeId: string): Promise<WindowRecord[]> {
  const { files } = await readManifest(set);
  const mark = `"episodeId":${JSON.stringify(episodeId)}`;
  const records: WindowRecord[] = [];
  const hash = createHash('sha256');
  let rest = '';
  const input = createReadStream(join(set.folder, windowFiles.windows), { encoding: 'utf8' });
  try {
    for await (const piece of input as AsyncIterable<string>) {
      hash.update(piece);
      const lines = (rest + piece).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line.includes(mark)) records.push(WindowRecord.parse(JSON.parse(line)));
    }
  } catch (cause) {
    throw gone(set, cause);
  }
  if (hash.digest('hex') !== files.windows) throw changed(set);
  return records;
}

/** The ids of a window. Errors: as `readManifest`. */
export async function idsOf(set: PlacedWindowSet, { offset, length }: WindowRecord): Promise<Uint32Array> {
  const bytes = Buffer.alloc(length * 4);
  const file = await open(join(set.folder, windowFiles.tokens), 'r').catch((cause: unknown) => {
    throw gone(set, cause);
  });
  try {
    const { bytesRead } = await file.read(bytes, 0, bytes.length, offset * 4);
    if (bytesRead !== bytes.length) throw changed(set);
  } finally {
    await file.close();
  }
  return Uint32Array.from({ length }, (_, i) => bytes.readUInt32LE(i * 4));
}

const gone = ({ folder }: PlacedWindowSet, cause: unknown): MassError =>
  new MassError('not_found', `The windows in ${folder} cannot be read; render them again.`, { cause });

const changed = ({ folder }: PlacedWindowSet): MassError =>
  new MassError('conflict', `The files in ${folder} are not what was rendered; remove the folder and render again.`);
