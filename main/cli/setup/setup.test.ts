import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

/** A project folder and a PATH of its own, on which npm, apt-get and bwrap are scripts that note their calls. */
let root: string;
let project: string;
let bin: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-setup-'));
  project = join(root, 'project');
  bin = join(root, 'bin');
  mkdirSync(join(project, 'main/cli/setup'), { recursive: true });
  mkdirSync(bin);
  cpSync(join(import.meta.dirname, 'setup.mjs'), join(project, 'main/cli/setup/setup.mjs'));
  lock('1.0.0');
  program('npm', `/bin/mkdir -p node_modules`);
  program('bwrap', '');
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const lockOf = (version: string) => ({
  packages: {
    '': { name: 'x' },
    'node_modules/a': { version },
    'node_modules/b': { version: '2.0.0', optional: true },
  },
});
const lock = (version: string) => writeFileSync(join(project, 'package-lock.json'), JSON.stringify(lockOf(version)));

function program(name: string, body: string): void {
  writeFileSync(join(bin, name), `#!/bin/sh\necho "${name} $*" >> ${root}/calls\n${body}\n`);
  chmodSync(join(bin, name), 0o755);
}
const calls = () =>
  existsSync(join(root, 'calls')) ? readFileSync(join(root, 'calls'), 'utf8').trim().split('\n') : [];
const setup = (args: string[] = [], uid?: number) =>
  spawnSync(process.execPath, [join(project, 'main/cli/setup/setup.mjs'), ...args], {
    encoding: 'utf8',
    env: { PATH: bin },
    ...(uid === undefined ? {} : { uid }),
  });

describe('Node packages', () => {
  it('installs once, and again only when the lock changes', () => {
    expect(setup().stdout).toBe('Installing Node packages (npm ci) ...\n');
    expect(setup()).toMatchObject({ status: 0, stdout: '', stderr: '' });
    expect(calls()).toEqual(['npm ci --no-audit --no-fund']);
    lock('1.1.0');
    setup();
    expect(calls()).toHaveLength(2);
  });

  it('accepts an installation made by hand that matches the lock, optional packages aside', () => {
    mkdirSync(join(project, 'node_modules'));
    const installed = join(project, 'node_modules/.package-lock.json');
    writeFileSync(installed, JSON.stringify({ packages: { 'node_modules/a': { version: '1.0.0' } } }));
    expect(setup().status).toBe(0);
    expect(calls()).toEqual([]);
    lock('1.1.0');
    setup();
    expect(calls()).toEqual(['npm ci --no-audit --no-fund']);
  });

  it('reports a failed install and tries again at the next run', () => {
    program('npm', 'exit 4');
    expect(setup()).toMatchObject({
      status: 1,
      stderr: '"npm ci --no-audit --no-fund" ended with exit code 4; see its output above.\n',
    });
    program('npm', '/bin/mkdir -p node_modules');
    expect(setup().status).toBe(0);
    expect(calls()).toHaveLength(2);
  });
});

const asRoot = process.getuid?.() === 0;
describe.runIf(process.platform === 'linux')('system packages', () => {
  beforeEach(() => {
    setup();
    rmSync(join(root, 'calls'));
    rmSync(join(bin, 'bwrap'));
  });
  const aptInstalls = (file: string) =>
    program('apt-get', `[ "$1" = install ] && /bin/cp ${bin}/npm ${bin}/${file}; exit 0`);

  it.runIf(asRoot)('installs bubblewrap by apt as root, once', () => {
    aptInstalls('bwrap');
    expect(setup()).toMatchObject({ status: 0, stdout: expect.stringMatching(/^Installing bubblewrap \(the sandbox/) });
    expect(setup()).toMatchObject({ status: 0, stdout: '' });
    expect(calls()).toEqual(['apt-get update -q', 'apt-get install -y -q bubblewrap']);
  });

  it.runIf(asRoot)('names the command to type to an ordinary user', () => {
    aptInstalls('bwrap');
    for (const folder of [root, bin, project]) chmodSync(folder, 0o755);
    const { status, stderr } = setup([], 65534);
    expect(status).toBe(1);
    expect(stderr).toBe(
      'bwrap is missing (the sandbox for commands the model writes); type: sudo sh -c "apt-get update && apt-get install -y bubblewrap"\n',
    );
    expect(calls()).toEqual([]);
  });

  it('says so when there is no apt', () => {
    expect(setup()).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^bwrap is missing .* package manager\.\n$/),
    });
  });

  it.runIf(asRoot)('installs chromium only when asked', () => {
    program('bwrap', '');
    aptInstalls('chromium');
    expect(setup().status).toBe(0);
    expect(calls()).toEqual([]);
    expect(setup(['--chromium']).status).toBe(0);
    expect(calls()).toEqual(['apt-get update -q', 'apt-get install -y -q chromium']);
  });

  it('refuses unknown arguments', () => {
    expect(setup(['--firefox'])).toMatchObject({
      status: 2,
      stderr: 'Unknown argument --firefox; the only one is --chromium.\n',
    });
  });
});
