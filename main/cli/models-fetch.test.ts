import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { readEngineFile } from '../client/connect-engine.ts';
import { CommandLine, type Ended } from './testing/command-line.ts';

/** A hub that wants a token, and then has nothing. */
const secret = 'hf_a-token-that-nobody-may-read';
let folder: string;
let hub: Server;
const authorizations: (string | undefined)[] = [];
beforeEach(async () => {
  authorizations.length = 0;
  folder = mkdtempSync(join(tmpdir(), 'mass-fetch-'));
  hub = createServer((request, response) => {
    authorizations.push(request.headers.authorization);
    response.writeHead(request.headers.authorization === `Bearer ${secret}` ? 404 : 401).end();
  });
  await new Promise<void>((resolve) => hub.listen(0, '127.0.0.1', () => resolve()));
});
afterEach(async () => {
  await new CommandLine(join(folder, 'data')).end();
  hub.close();
  await vi.waitFor(() => rmSync(folder, { recursive: true, force: true }), { timeout: 10_000 });
});

function fetchWith(token: string | undefined): Promise<Ended> {
  const HF_ENDPOINT = `http://127.0.0.1:${(hub.address() as AddressInfo).port}`;
  return new CommandLine(join(folder, 'data'), { HF_ENDPOINT, HF_TOKEN: token }).mass(
    'models',
    'fetch',
    'qwen3.5-4b-q4-0',
  );
}

it('gives the token to the hub with the download that needs it, and to nothing else', async () => {
  expect(await fetchWith(undefined)).toMatchObject({
    code: 1,
    err: expect.stringMatching(/licence .* set HF_TOKEN\./),
  });
  expect(authorizations.every((value) => value === undefined)).toBe(true);

  const { code, out, err } = await fetchWith(secret);
  expect([code, authorizations.at(-1)]).toEqual([1, `Bearer ${secret}`]);
  expect(out + err).not.toContain(secret);
  // Neither logs, nor the database, nor the engine's own environment hold it: it is gone with the call.
  for (const file of readdirSync(join(folder, 'data'), { recursive: true, encoding: 'utf8' })) {
    const path = join(folder, 'data', file);
    if (statSync(path).isFile()) expect([file, readFileSync(path).includes(secret)]).toEqual([file, false]);
  }
  const pid = readEngineFile(join(folder, 'data'))?.pid;
  if (process.platform === 'linux') expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).not.toContain(secret);
  await fetchWith(undefined);
  expect(authorizations.at(-1)).toBeUndefined();
});
