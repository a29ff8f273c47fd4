import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { smolLm2Model } from '../inference/testing/smollm2.ts';
import { CommandLine } from './testing/command-line.ts';

/** What only llama.cpp and this machine's memory can refuse. */
let folder: string;
let model: Buffer;
let line: CommandLine;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mass-bad-model-'));
  model = readFileSync(await smolLm2Model());
  line = new CommandLine(join(folder, 'data'));
});
afterAll(async () => {
  await line.end();
  await vi.waitFor(() => rmSync(folder, { recursive: true, force: true }), { timeout: 10_000 });
});

/** The model with some of its bytes changed, registered under `id`. */
async function register(id: string, change: (bytes: Buffer) => void): Promise<string> {
  const path = join(folder, `${id}.gguf`);
  const bytes = Buffer.from(model);
  change(bytes);
  writeFileSync(path, bytes);
  expect(await line.mass('models', 'add', path, '--id', id)).toMatchObject({ code: 0 });
  return path;
}

function writeContextLength(bytes: Buffer, tokens: number): void {
  const key = 'llama.context_length';
  const typeBytes = 4;
  bytes.writeUInt32LE(tokens, bytes.indexOf(key) + key.length + typeBytes);
}

it('a model that needs more memory than there is: numbers, and the nearest plan that fits', async () => {
  await register('long', (bytes) => writeContextLength(bytes, 2 ** 20));
  const planned = ['models', 'plan', 'long', '--context-size', String(2 ** 20), '--sequences', '64'];
  const { code, out } = await line.mass(...planned);
  expect(code).toBe(1);
  expect(out).toMatch(/^Does not fit on .*: needs [\d.]+ [GT]iB, [\d.]+ GiB of [\d.]+ GiB free\.$/m);
  const plan = JSON.parse((await line.mass(...planned, '--json')).out);
  expect(plan.fits).toBe(false);
  expect(plan.nearest.neededBytes).toBeLessThanOrEqual(plan.freeBytes);
  const { contextSize, sequences } = plan.nearest;
  expect(contextSize * sequences).toBeLessThan(64 * 2 ** 20);
});

it('an architecture that llama.cpp does not know is refused by name', async () => {
  await register('strange', (bytes) => {
    for (let at = bytes.indexOf('llama'); at >= 0 && at < 100_000; at = bytes.indexOf('llama', at))
      bytes.write('zlama', at);
  });
  expect(await line.mass('models', 'plan', 'strange')).toMatchObject({
    code: 1,
    err: expect.stringMatching(
      /has the architecture "zlama", which this llama\.cpp does not know; choose another model\./,
    ),
  });
});

it('a file that was cut after it was registered is refused before anything is loaded', async () => {
  const path = await register('cut', () => undefined);
  truncateSync(path, 50_000_000);
  expect(await line.mass('models', 'plan', 'cut')).toMatchObject({
    code: 1,
    err: expect.stringMatching(/50000000 (of at least \d+ )?bytes\)?; fetch/),
  });
});

it('a context longer than the model was trained for is refused with the most it takes', async () => {
  await register('whole', () => undefined);
  expect(await line.mass('models', 'plan', 'whole', '--context-size', '9000')).toMatchObject({
    code: 1,
    err: expect.stringMatching(/trained for 8192 tokens and model\.contextSize is 9000; set it to at most 8192\./),
  });
});
