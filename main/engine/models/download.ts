import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open, readFile, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { cancelled, MassError } from '../../common/base/errors.ts';
import { hashInto } from '../../node/file-hash.ts';
import type { ProgressMeter } from './transfer-progress.ts';

export interface DownloadOptions {
  readonly url: string;
  /** sent to the origin of `url` only, never to where it redirects */
  readonly token?: string;
  readonly partPath: string;
  readonly meter: ProgressMeter;
  /** called once the size is known, before a byte is written; may throw */
  readonly checkSpace: (missingBytes: number) => Promise<void>;
  readonly signal?: AbortSignal;
  /** milliseconds without a byte before the connection counts as dead, and between tries without progress */
  readonly stallMs?: number;
  readonly retryMs?: number;
}

/** A finished .part file. `published` is the sha256 the server states for the file, when it does. */
export interface Downloaded {
  readonly sha256: string;
  readonly bytes: number;
  readonly published: string | null;
}

const triesWithoutProgress = 4;
const PartRecord = z.strictObject({ url: z.string(), etag: z.string().nullable() });

/**
 * Downloads into `partPath`, going on where an earlier call stopped (HTTP Range, guarded by If-Range). The connection
 * may break: up to 4 tries in a row without a new byte. The .part file is synced but not renamed.
 * @throws MassError not_found (404), prerequisite (401, 403, disk full), infrastructure (network), cancelled
 */
export async function download(options: DownloadOptions): Promise<Downloaded> {
  const part = await PartFile.open(options.partPath, options.url);
  try {
    for (let failures = 0; ; ) {
      const before = part.bytes;
      try {
        const published = await transfer(options, part);
        await part.sync();
        return { sha256: part.digest(), bytes: part.bytes, published };
      } catch (error) {
        if (options.signal?.aborted)
          throw cancelled('The download was cancelled; run it again to go on where it stopped.');
        if (!(error instanceof Transient)) throw error;
        failures = part.bytes > before ? 1 : failures + 1;
        if (failures >= triesWithoutProgress) throw gaveUp(options.url, part.bytes, error);
        await sleep(
          (options.retryMs ?? 1000) * 2 ** (failures - 1),
          undefined,
          options.signal ? { signal: options.signal } : {},
        ).catch(() => {
          throw cancelled('The download was cancelled; run it again to go on where it stopped.');
        });
      }
    }
  } finally {
    await part.close();
  }
}

/** Worth another try: the connection broke or the server is busy. */
class Transient extends Error {}

const gaveUp = (url: string, bytes: number, cause: unknown): MassError =>
  new MassError(
    'infrastructure',
    `${url} cannot be downloaded (${bytes} bytes are kept); check the network and run it again to go on.`,
    {
      details: { bytes },
      cause,
    },
  );

/** The file under way with the running hash of its bytes, and beside it which version of what it is a part of. */
class PartFile {
  private readonly path: string;
  private readonly url: string;
  private readonly file: FileHandle;
  private hash: Hash;
  bytes: number;
  etag: string | null;

  private constructor(fields: {
    path: string;
    url: string;
    file: FileHandle;
    hash: Hash;
    bytes: number;
    etag: string | null;
  }) {
    this.path = fields.path;
    this.url = fields.url;
    this.file = fields.file;
    this.hash = fields.hash;
    this.bytes = fields.bytes;
    this.etag = fields.etag;
  }

  static async open(path: string, url: string): Promise<PartFile> {
    const text = await readFile(`${path}.json`, 'utf8').catch(() => ''); // absent: a new download
    let record: z.infer<typeof PartRecord> | null = null;
    try {
      record = PartRecord.parse(JSON.parse(text));
    } catch {
      // No record: bytes of unknown origin are thrown away below.
    }
    const file = await open(path, record?.url === url ? 'a+' : 'w+').catch((cause: unknown) => {
      throw writeFailed(path, cause);
    });
    try {
      const { size } = await file.stat();
      const hash = createHash('sha256');
      await hashInto(hash, path, { end: size });
      return new PartFile({ path, url, file, hash, bytes: size, etag: record?.url === url ? record.etag : null });
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Names the version the coming bytes belong to. */
  async label(etag: string | null): Promise<void> {
    this.etag = etag;
    await writeFile(`${this.path}.json`, JSON.stringify({ url: this.url, etag })).catch((cause: unknown) => {
      throw writeFailed(this.path, cause);
    });
  }

  async restart(): Promise<void> {
    await this.file.truncate(0);
    this.hash = createHash('sha256');
    this.bytes = 0;
  }

  async append(chunk: Uint8Array): Promise<void> {
    try {
      await this.file.appendFile(chunk);
    } catch (cause) {
      throw writeFailed(this.path, cause);
    }
    this.hash.update(chunk);
    this.bytes += chunk.length;
  }

  digest(): string {
    return this.hash.copy().digest('hex');
  }

  async sync(): Promise<void> {
    await this.file.sync();
  }

  async close(): Promise<void> {
    await this.file.close();
  }
}

function writeFailed(path: string, cause: unknown): MassError {
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new MassError(
      'prerequisite',
      `The disk is full while writing ${path}; free space and run it again to go on.`,
      { details: { disk: true }, cause },
    );
  return new MassError('prerequisite', `${path} cannot be written; check the folder and its permissions.`, { cause });
}

export async function removePart(partPath: string): Promise<void> {
  await rm(partPath, { force: true });
  await rm(`${partPath}.json`, { force: true });
}

/** One connection, from where the part ends to the end of the file. Returns the sha256 the server states. */
async function transfer(options: DownloadOptions, part: PartFile): Promise<string | null> {
  const stall = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stall.signal]) : stall.signal;
  let timer = setTimeout(() => stall.abort(), options.stallMs ?? 60_000);
  try {
    const { response, published } = await request(options, part, signal);
    try {
      const total = await begin(options, part, response);
      const body = response.status === 416 ? [] : (response.body ?? []);
      for await (const chunk of body as AsyncIterable<Uint8Array>) {
        clearTimeout(timer);
        timer = setTimeout(() => stall.abort(), options.stallMs ?? 60_000);
        await part.append(chunk);
        options.meter.add(chunk.length);
      }
      if (total !== null && part.bytes !== total)
        throw new Transient(`the server sent ${part.bytes} of ${total} bytes`);
    } finally {
      await response.body?.cancel().catch(() => undefined); // already consumed or broken: nothing is left to free
    }
    options.meter.end();
    return published;
  } catch (error) {
    if (error instanceof MassError || error instanceof Transient) throw error;
    throw new Transient('the connection broke', { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

/** Follows redirects itself: the first answer may state the file's sha256, and the token stays with its origin. */
async function request(options: DownloadOptions, part: PartFile, signal: AbortSignal) {
  const range: Record<string, string> =
    part.bytes > 0 ? { range: `bytes=${part.bytes}-`, ...(part.etag ? { 'if-range': part.etag } : {}) } : {};
  let url = options.url;
  let published: string | null = null;
  for (let hop = 0; hop < 6; hop++) {
    const sameOrigin = new URL(url).origin === new URL(options.url).origin;
    const authorization: Record<string, string> =
      options.token && sameOrigin ? { authorization: `Bearer ${options.token}` } : {};
    // Without identity a server may compress, and byte ranges would count compressed bytes.
    const headers = { 'accept-encoding': 'identity', ...range, ...authorization };
    const response = await fetch(url, { headers, redirect: 'manual', signal });
    published ??= /^"?([0-9a-f]{64})"?$/.exec(response.headers.get('x-linked-etag') ?? '')?.[1] ?? null;
    const location = response.headers.get('location');
    if (response.status < 300 || response.status >= 400 || location === null) return { response, published };
    await response.body?.cancel();
    url = new URL(location, url).href;
  }
  throw new MassError('infrastructure', `${options.url} redirects in a circle; check the address or its mirror.`);
}

/** Reads the status line: decides where the bytes go and how many there will be in all (null: not stated). */
async function begin(options: DownloadOptions, part: PartFile, response: Response): Promise<number | null> {
  refuseStatus(options.url, response.status);
  const range = /^bytes (?:(\d+)-\d+|\*)\/(\d+)$/.exec(response.headers.get('content-range') ?? '');
  if (response.status === 416) {
    if (range && Number(range[2]) === part.bytes) return part.bytes; // it was complete already; the body is not the file
    await part.restart();
    throw new Transient('the kept part is longer than the file');
  }
  const strong = response.headers.get('etag');
  if (response.status === 206) {
    if (!range || Number(range[1]) !== part.bytes) {
      await part.restart();
      throw new Transient('the server sent another range than asked for');
    }
  } else {
    if (part.bytes > 0) await part.restart();
    await part.label(strong && !strong.startsWith('W/') ? strong : null);
  }
  const length = response.headers.get('content-length');
  const total = response.status === 206 ? Number(range?.[2]) : length === null ? null : Number(length);
  if (total !== null) await options.checkSpace(total - part.bytes);
  options.meter.begin('download', part.bytes, total);
  return total;
}

function refuseStatus(url: string, status: number): void {
  if (status === 200 || status === 206 || status === 416) return;
  if (status === 401 || status === 403)
    throw new MassError(
      'prerequisite',
      `${url} needs permission (HTTP ${status}); accept the model's licence on its page and set HF_TOKEN.`,
    );
  if (status === 404) throw new MassError('not_found', `${url} does not exist (HTTP 404); check the model's source.`);
  if (status === 408 || status === 429 || status >= 500) throw new Transient(`HTTP ${status}`);
  throw new MassError('infrastructure', `${url} answered HTTP ${status}; check the address or its mirror.`);
}
