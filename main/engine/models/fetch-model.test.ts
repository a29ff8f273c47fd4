import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ModelEntry } from '../../common/domain/model-catalogue.ts';
import { type FetchOptions, fetchModel } from './fetch-model.ts';
import { buildGguf, smallModel } from './gguf-fixture.ts';
import type { TransferProgress } from './transfer-progress.ts';

const file = buildGguf({ ...smallModel, tensors: [['t', [200, 1000]]] }); // 800 kB: several chunks on the wire
const sha256 = createHash('sha256').update(file).digest('hex');

let folder: string;
let server: Server;
let requests: { path: string; range: string | undefined; authorization: string | undefined }[];
let answer: (request: IncomingMessage, response: ServerResponse) => void;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mass-models-'));
  requests = [];
  answer = serveRanges();
  server = createServer((request, response) => {
    const { range, authorization } = request.headers;
    requests.push({ path: request.url ?? '', range, authorization });
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true, force: true });
});

/** A correct range server; `cutAfter` breaks the first connections after that many bytes of body. */
function serveRanges({ body = file, etag = '"v1"', cuts = [] as number[] } = {}) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const ifRange = request.headers['if-range'];
    const asked = /^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1];
    const start = asked !== undefined && (ifRange === undefined || ifRange === etag) ? Number(asked) : 0;
    if (start >= body.length) {
      response.writeHead(416, { 'content-range': `bytes */${body.length}` }).end('too far');
      return;
    }
    const rest = body.subarray(start);
    const headers = {
      etag,
      'content-length': rest.length,
      ...(start ? { 'content-range': `bytes ${start}-${body.length - 1}/${body.length}` } : {}),
    };
    response.writeHead(start ? 206 : 200, headers);
    const cut = cuts.shift();
    if (cut === undefined) response.end(rest);
    else response.write(rest.subarray(0, cut), () => setTimeout(() => response.destroy(), 20));
  };
}

const entryOf = (over: Record<string, unknown> = {}) =>
  ModelEntry.parse({
    id: 'tiny',
    title: 'Tiny',
    file: 'Tiny.gguf',
    architecture: 'llama',
    quantisation: 'F32',
    parameters: 1,
    contextLength: 2048,
    licence: 'Apache-2.0',
    bytes: file.length,
    sha256,
    sources: ['hf:own/repo/Tiny.gguf'],
    ...over,
  });
const { bytes: _bytes, sha256: _sha256, ...unmeasured } = entryOf();
const origin = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const fetchTiny = (over: Partial<FetchOptions> = {}) =>
  fetchModel({
    entry: entryOf(),
    modelsFolder: folder,
    env: { HF_ENDPOINT: origin() },
    retryMs: 1,
    stallMs: 5000,
    ...over,
  });
const path = () => join(folder, 'Tiny.gguf');

describe('a download', () => {
  it('ends under the final name, verified, with its progress told, and is not repeated', async () => {
    const progress: TransferProgress[] = [];
    const model = await fetchTiny({
      onProgress: (p) => progress.push(p),
      env: { HF_ENDPOINT: `${origin()}/`, HF_TOKEN: 'secret' },
    });
    expect(model).toEqual({ path: path(), bytes: file.length, sha256, fetched: true });
    expect(readFileSync(path()).equals(file)).toBe(true);
    expect(requests).toEqual([
      { path: '/own/repo/resolve/main/Tiny.gguf', range: undefined, authorization: 'Bearer secret' },
    ]);
    expect(progress[0]).toMatchObject({ phase: 'download', bytes: 0, total: file.length });
    expect(progress.at(-1)).toMatchObject({ bytes: file.length, etaSeconds: 0 });
    expect(await fetchTiny()).toEqual({ ...model, fetched: false });
    expect(requests).toHaveLength(1);
    expect(readdirSync(folder).sort()).toEqual(['Tiny.gguf', 'Tiny.gguf.verified.json']);
  });

  it('continues within one call after the connection breaks', async () => {
    answer = serveRanges({ cuts: [300_000, 200_000] });
    expect((await fetchTiny()).sha256).toBe(sha256);
    expect(requests).toHaveLength(3);
    expect(requests[0]?.range).toBeUndefined();
    const starts = requests.slice(1).map((r) => Number(/^bytes=(\d+)-$/.exec(r.range ?? '')?.[1]));
    expect(starts[0]).toBeGreaterThan(0);
    expect(starts[1]).toBeGreaterThan(starts[0]!);
  });

  it('continues in a later call after it was cancelled', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': file.length, etag: '"v1"' }).write(file.subarray(0, 400_000));
    };
    const controller = new AbortController();
    const first = fetchTiny({ signal: controller.signal });
    const part = `${path()}.part`;
    while (!existsSync(part) || statSync(part).size < 400_000) await new Promise((resolve) => setTimeout(resolve, 5));
    controller.abort();
    await expect(first).rejects.toMatchObject({ code: 'cancelled' });
    expect(existsSync(path())).toBe(false);
    answer = serveRanges();
    expect((await fetchTiny()).sha256).toBe(sha256);
    expect(requests.at(-1)?.range).toBe('bytes=400000-');
  });

  it('continues in another process after a kill -9', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': file.length, etag: '"v1"' }).write(file.subarray(0, 400_000));
    };
    const options = { entry: entryOf(), modelsFolder: folder, env: { HF_ENDPOINT: origin() } };
    const program = `import { fetchModel } from ${JSON.stringify(join(import.meta.dirname, 'fetch-model.ts'))};
await fetchModel(${JSON.stringify(options)});`;
    const args = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', program];
    const child = spawn(process.execPath, args, { stdio: 'inherit' });
    const ended = once(child, 'exit');
    const part = `${path()}.part`;
    while (child.exitCode === null && (!existsSync(part) || statSync(part).size < 400_000))
      await new Promise((resolve) => setTimeout(resolve, 5));
    child.kill('SIGKILL');
    expect(await ended).toEqual([null, 'SIGKILL']);
    answer = serveRanges();
    expect((await fetchTiny()).sha256).toBe(sha256);
    expect(requests.map((r) => r.range)).toEqual([undefined, 'bytes=400000-']);
  });

  it('begins anew when the file on the server is another one than the kept part', async () => {
    writeFileSync(`${path()}.part`, Buffer.alloc(1000, 7));
    const url = `${origin()}/own/repo/resolve/main/Tiny.gguf`;
    writeFileSync(`${path()}.part.json`, JSON.stringify({ url, etag: '"v0"' }));
    expect((await fetchTiny()).sha256).toBe(sha256);
    expect(requests).toMatchObject([{ range: 'bytes=1000-' }]);
  });

  it('throws away kept bytes of unknown origin, and copes with a part that is complete or too long', async () => {
    writeFileSync(`${path()}.part`, 'junk');
    await fetchTiny();
    expect(requests[0]?.range).toBeUndefined();
    for (const kept of [file, Buffer.concat([file, Buffer.from('x')])]) {
      rmSync(path());
      rmSync(`${path()}.verified.json`);
      writeFileSync(`${path()}.part`, kept);
      writeFileSync(
        `${path()}.part.json`,
        JSON.stringify({ url: `${origin()}/own/repo/resolve/main/Tiny.gguf`, etag: '"v1"' }),
      );
      expect((await fetchTiny()).sha256).toBe(sha256);
    }
  });

  it('reports a body that always ends early, keeping what came', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'transfer-encoding': 'chunked' }).end(file.subarray(0, 5000));
    };
    await expect(
      fetchTiny({ entry: { ...unmeasured, approximateBytes: file.length } as ModelEntry }),
    ).rejects.toMatchObject({
      code: 'invalid_input',
      details: { problem: 'truncated' },
    });
    answer = serveRanges({ cuts: [0, 0, 0, 0] });
    await expect(fetchTiny()).rejects.toMatchObject({
      code: 'infrastructure',
      message: /cannot be downloaded .* run it again to go on/,
    });
  });

  it("refuses a wrong hash, the catalogue's or the server's own, and keeps nothing of it", async () => {
    await expect(fetchTiny({ entry: entryOf({ sha256: 'a'.repeat(64) }) })).rejects.toMatchObject({
      code: 'infrastructure',
      message: /damaged or was changed/,
      details: { expected: 'a'.repeat(64), found: sha256 },
    });
    const serve = serveRanges();
    answer = (request, response) => {
      response.setHeader('x-linked-etag', `"${'b'.repeat(64)}"`);
      serve(request, response);
    };
    await expect(fetchTiny({ entry: entryOf({ sha256: undefined }) })).rejects.toMatchObject({
      details: { expected: 'b'.repeat(64) },
    });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('refuses a file that is no model', async () => {
    answer = serveRanges({ body: Buffer.from('<html>sign in first, please, and accept the conditions</html>') });
    const entry = { ...unmeasured, approximateBytes: 100 } as ModelEntry;
    await expect(fetchTiny({ entry })).rejects.toMatchObject({
      code: 'invalid_input',
      details: { problem: 'not_gguf' },
    });
    expect(existsSync(path())).toBe(false);
  });

  it.each([
    [404, 'not_found', /does not exist \(HTTP 404\)/],
    [401, 'prerequisite', /accept the model's licence .* HF_TOKEN/],
    [403, 'prerequisite', /HF_TOKEN/],
    [503, 'infrastructure', /check the network/],
    [400, 'infrastructure', /answered HTTP 400/],
  ] as const)('explains HTTP %i', async (status, code, message) => {
    answer = (_request, response) => response.writeHead(status).end();
    await expect(fetchTiny()).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
    expect(requests).toHaveLength(status === 503 ? 4 : 1);
  });

  it('gives up on a server that stops sending, and on one that is not there', async () => {
    answer = (_request, response) => response.writeHead(200, { 'content-length': file.length }).flushHeaders();
    await expect(fetchTiny({ stallMs: 30 })).rejects.toMatchObject({ code: 'infrastructure' });
    await expect(fetchTiny({ env: { HF_ENDPOINT: 'http://127.0.0.1:9' } })).rejects.toMatchObject({
      code: 'infrastructure',
    });
  });

  it('follows a redirect to another origin without handing it the token', async () => {
    const seen: (string | undefined)[] = [];
    const other = createServer((request, response) => {
      seen.push(request.headers.authorization);
      serveRanges()(request, response);
    });
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    try {
      const target = `http://127.0.0.1:${(other.address() as AddressInfo).port}/file`;
      answer = (_request, response) =>
        response.writeHead(302, { location: target, 'x-linked-etag': `"${sha256}"` }).end();
      const entry = entryOf({ sha256: undefined });
      expect((await fetchTiny({ entry, env: { HF_ENDPOINT: origin(), HF_TOKEN: 'secret' } })).sha256).toBe(sha256);
      expect(requests[0]?.authorization).toBe('Bearer secret');
      expect(seen).toEqual([undefined]);
    } finally {
      other.closeAllConnections();
      other.close();
    }
  });
});

describe('the disk', () => {
  it('is checked first, with numbers', async () => {
    const entry = ModelEntry.parse({ ...unmeasured, approximateBytes: 20e9 });
    await expect(fetchTiny({ entry, freeBytes: async () => 5e9 })).rejects.toMatchObject({
      code: 'prerequisite',
      message: `Tiny needs 20.07 GB on the disk of ${folder} and 5.00 GB are free; free 15.07 GB or choose another models folder.`,
    });
    expect(requests).toEqual([]);
  });

  it('is checked again when the server states a larger size', async () => {
    const entry = ModelEntry.parse({ ...unmeasured, approximateBytes: 1000 });
    const free = (64 << 20) + 2000;
    await expect(fetchTiny({ entry, freeBytes: async () => free })).rejects.toMatchObject({ code: 'prerequisite' });
    expect(requests).toHaveLength(1);
  });

  it.runIf(existsSync('/dev/full'))('that fills up on the way stops the download with a way out', async () => {
    symlinkSync('/dev/full', `${path()}.part`);
    await expect(fetchTiny()).rejects.toMatchObject({
      code: 'prerequisite',
      message: /The disk is full while writing/,
    });
  });
});

describe('a file already there', () => {
  it('is verified once and never replaced', async () => {
    writeFileSync(path(), file);
    expect(await fetchTiny()).toMatchObject({ fetched: false, sha256 });
    writeFileSync(path(), buildGguf(smallModel));
    await expect(fetchTiny()).rejects.toMatchObject({ code: 'conflict', message: /move it away and fetch again/ });
    expect(readFileSync(path()).equals(buildGguf(smallModel))).toBe(true);
    expect(requests).toEqual([]);
  });

  it('is not fetched twice at the same time', async () => {
    const [first, second] = await Promise.allSettled([fetchTiny(), fetchTiny()]);
    expect(first).toMatchObject({ status: 'fulfilled' });
    expect(second).toMatchObject({ status: 'rejected', reason: { code: 'conflict' } });
    expect(requests).toHaveLength(1);
  });
});
