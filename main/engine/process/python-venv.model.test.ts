import { execFileSync, fork } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ensureVenv, ensureWorkingVenv, type VenvRecipe } from './python-venv.ts';

const builder = fileURLToPath(new URL('./testing/venv-builder.ts', import.meta.url));
let folder: string;
let root: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-venv-'));
  root = join(folder, 'python');
  writeFileSync(join(folder, 'requirements.txt'), '# nothing to fetch\n');
});
afterEach(() => rmSync(folder, { recursive: true }));

const recipe = (change: Partial<VenvRecipe> = {}): VenvRecipe => ({
  prefix: 'small',
  requirementsFile: join(folder, 'requirements.txt'),
  pipArguments: ['--no-index'],
  modules: ['json', 'sqlite3'],
  announcement: 'small',
  packages: 'nothing',
  bytes: 1000,
  locked: false,
  ...change,
});
const entries = (): string[] => (existsSync(root) ? readdirSync(root) : []);

describe('a private Python environment', () => {
  it('is made once, for all who want it, and not found for other requirements', async () => {
    const said: string[] = [];
    const options = { root, onProgress: (line: string) => said.push(line) };
    const [first, second] = await Promise.all([ensureVenv(recipe(), options), ensureVenv(recipe(), options)]);
    expect(second).toEqual(first);
    expect(said.filter((line) => line.startsWith('Making a Python'))).toHaveLength(1);
    expect(entries()).toEqual([expect.stringMatching(/^small-[0-9a-f]{16}$/)]);
    await expect(ensureWorkingVenv(recipe(), { root, build: false })).resolves.toEqual(first);
    const again = await ensureVenv(recipe(), { root, searchPath: '/nonexistent', build: false });
    expect(again).toEqual(first);
    writeFileSync(join(folder, 'requirements.txt'), '# other\n');
    await expect(ensureVenv(recipe(), { root, build: false })).rejects.toMatchObject({ code: 'prerequisite' });
  });

  it('that does not work any more is named, and made anew by a repair', async () => {
    const { folder: made, python } = await ensureVenv(recipe(), { root });
    const module = execFileSync(python, ['-c', 'import pip; print(pip.__file__)']).toString().trim();
    const needsPip = recipe({ modules: ['pip'] });
    rmSync(module);
    writeFileSync(module, 'raise ImportError("half a package")');
    await expect(ensureWorkingVenv(needsPip, { root, build: false })).rejects.toMatchObject({
      code: 'infrastructure',
      message: expect.stringContaining('do not load') as string,
      cause: expect.objectContaining({ message: expect.stringContaining('half a package') as string }) as Error,
    });
    await expect(ensureWorkingVenv(needsPip, { root })).resolves.toMatchObject({ folder: made });
    await expect(ensureWorkingVenv(needsPip, { root, build: false })).resolves.toMatchObject({ folder: made });
  });

  it.each([
    ['too little space', { bytes: 1e18 }, 'prerequisite', 'are free; free'],
    ['packages that cannot be had', { pipArguments: ['--no-index', 'no-such-package'] }, 'infrastructure', 'fetched'],
    ['packages that do not load', { modules: ['no_such_module'] }, 'infrastructure', 'do not load'],
  ])('%s leaves nothing behind', async (_what, change, code, words) => {
    await expect(ensureVenv(recipe(change), { root })).rejects.toMatchObject({
      code,
      message: expect.stringContaining(words) as string,
    });
    expect(entries()).toEqual([]);
  });

  it('is not made when that is cancelled', async () => {
    const abort = new AbortController();
    const making = ensureVenv(recipe(), { root, signal: abort.signal, onProgress: () => abort.abort() });
    await expect(making).rejects.toMatchObject({ code: 'cancelled' });
    expect(entries()).toEqual([]);
  });

  it('is not in use when its engine was killed halfway, and is made by the next', async () => {
    const engine = fork(builder, [JSON.stringify(recipe()), root], {
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    const ended = new Promise((resolve) => engine.once('exit', resolve));
    await new Promise<void>((resolve) =>
      engine.on('message', (line) => {
        if (String(line).startsWith('Fetching')) resolve();
      }),
    );
    engine.kill('SIGKILL');
    await ended;
    expect(entries()).toEqual([expect.stringMatching(/\.tmp$/)]);
    await expect(ensureVenv(recipe(), { root, build: false })).rejects.toMatchObject({ code: 'prerequisite' });
    await ensureVenv(recipe(), { root });
    expect(entries()).toEqual([expect.stringMatching(/^small-[0-9a-f]{16}$/)]);
  });
});
