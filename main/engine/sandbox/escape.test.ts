import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { projectRoot } from '../../node/project-root.ts';
import { createSandbox, detectSandbox } from './detect.ts';
import type { Sandbox } from './sandbox.ts';
import { stage } from './staging.ts';
import { ESCAPE_CASES, SECRET } from './testing/escape-cases.ts';

const found = await detectSandbox();
const isInstalled = found.available || found.reason !== 'bubblewrap is not installed';
const isRoot = process.getuid?.() === 0;
if (!isInstalled) process.stderr.write('SKIPPED: sandbox escape tests, because bubblewrap is not installed\n');

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'mass-escape-'));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

describe.skipIf(!isInstalled)(`sandbox escapes as ${isRoot ? 'root' : 'an ordinary user'}`, () => {
  const folder = path.join(root, 'own');
  let sandbox: Sandbox;
  beforeAll(async () => {
    process.env.MASS_TEST_SECRET = SECRET;
    fs.mkdirSync(folder, { mode: 0o700 });
    fs.writeFileSync(path.join(folder, 'secret'), SECRET);
    sandbox = await createSandbox('bubblewrap', silentLogger);
  });
  test.each(ESCAPE_CASES)('$name', ({ run }) => run({ sandbox, folder }), 60_000);
});

describe.skipIf(!isInstalled || !isRoot)('sandbox escapes as an ordinary user, started by root', () => {
  const owner = { uid: 54_321, gid: 54_321 };
  let lines: { name: string; failure: string | null; uid: number }[] = [];
  beforeAll(async () => {
    const folder = path.join(root, 'ordinary');
    fs.mkdirSync(folder, { mode: 0o700 });
    fs.chownSync(folder, owner.uid, owner.gid);
    fs.chmodSync(root, 0o711);
    lines = (await runAsOwner(folder))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  }, 240_000);

  /** The project may lie where only root can read: it is staged, as workspaces are. */
  async function runAsOwner(folder: string): Promise<string> {
    const staged = await stage([projectRoot, path.dirname(process.execPath)], owner);
    try {
      const [project, node] = staged.paths as [string, string];
      const script = path.join(project, 'main/engine/sandbox/testing/run-escape-cases.ts');
      const args = [path.join(node, 'node'), '--disable-warning=ExperimentalWarning', script, folder];
      // A descriptor that the engine inherits from whatever started it, open on a file of root.
      const inherited = fs.openSync(path.join(root, 'own', 'secret'), 'r');
      const child = spawn(staged.program, [...staged.prefix, ...args], {
        stdio: ['ignore', 'pipe', 'inherit', inherited],
        env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', HOME: folder },
      });
      fs.closeSync(inherited);
      let text = '';
      child.stdout?.on('data', (chunk: Buffer) => {
        text += chunk.toString();
      });
      await new Promise((resolve) => child.once('close', resolve));
      return text;
    } finally {
      await staged.dispose();
    }
  }

  test.each(ESCAPE_CASES)('$name', ({ name }) => {
    expect(lines.find((line) => line.name === name)).toEqual({ name, failure: null, uid: owner.uid });
  });
});
