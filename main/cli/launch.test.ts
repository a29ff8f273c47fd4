import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

/** A project with the launcher and a small mass.ts, whose packaged Node is the one this test runs in. */
let project: string;
let launcher: string;
beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), 'mass-launch-'));
  launcher = join(project, 'main/cli/launch.mjs');
  mkdirSync(join(project, 'main/cli'), { recursive: true });
  cpSync(join(import.meta.dirname, 'launch.mjs'), launcher);
  writeFileSync(join(project, 'package.json'), '{"type":"module"}');
  writeFileSync(
    join(project, 'main/cli/mass.ts'),
    `const [command, value]: string[] = process.argv.slice(2);
process.on('SIGTERM', () => { console.log('asked to stop'); process.exit(7); });
if (command === 'exit') process.exit(Number(value));
if (command === 'die') process.kill(process.pid, value as NodeJS.Signals);
if (command === 'wait') { console.log('ready'); setInterval(() => undefined, 1000); }
if (command === 'echo') console.log(JSON.stringify(process.argv.slice(1)));
`,
  );
});
afterEach(() => rmSync(project, { recursive: true, force: true }));

function packNode(): void {
  const folder = join(project, `node_modules/node-${process.platform}-${process.arch}/bin`);
  mkdirSync(folder, { recursive: true });
  symlinkSync(process.execPath, join(folder, 'node'));
}

/** The machine's own Node when it is too old for TypeScript: the case the launcher is for. */
const oldNode = ['/usr/local/bin/node', '/usr/bin/node'].find(
  (path) => existsSync(path) && /^v(1\d|20|21)\./.test(spawnSync(path, ['--version'], { encoding: 'utf8' }).stdout),
);

const hosts = [
  ['a Node that runs TypeScript', process.execPath] as const,
  ...(oldNode ? [['an old Node', oldNode] as const] : []),
];

describe.each(hosts)('under %s', (_name, node) => {
  beforeEach(packNode);
  const run = (...args: string[]) => spawnSync(node, [launcher, ...args], { encoding: 'utf8' });

  it('passes arguments on and prints nothing of its own', () => {
    const { stdout, stderr } = run('echo', 'a b', '--x=1');
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual([join(project, 'main/cli/mass.ts'), 'echo', 'a b', '--x=1']);
  });

  it('ends with the same exit code or signal', () => {
    expect(run('exit', '0').status).toBe(0);
    expect(run('exit', '3').status).toBe(3);
    expect(run('die', 'SIGKILL').signal).toBe('SIGKILL');
    expect(run('die', 'SIGINT').signal).toBe('SIGINT');
  });

  it('lets the command handle a signal', async () => {
    const child: ChildProcess = spawn(node, [launcher, 'wait'], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      let text = '';
      child.stdout?.on('data', (chunk) => (text += chunk));
      while (!text.includes('ready')) await new Promise((resolve) => setTimeout(resolve, 20));
      child.kill('SIGTERM');
      const [code] = await once(child, 'close');
      expect(code).toBe(7);
      expect(text).toContain('asked to stop');
    } finally {
      child.kill('SIGKILL');
    }
  });
});

it.runIf(oldNode)('names the way out when the packaged Node is missing', () => {
  const { status, stderr } = spawnSync(oldNode!, [launcher, 'echo'], { encoding: 'utf8' });
  expect(status).toBe(1);
  expect(stderr).toBe(
    `mass needs Node 22.18 or newer; run "node main/cli/setup/setup.mjs" in ${project}/ to install it.\n`,
  );
});

it.runIf(oldNode)('reports a packaged Node that cannot be started', () => {
  packNode();
  const broken = join(project, `node_modules/node-${process.platform}-${process.arch}/bin/node`);
  rmSync(broken);
  writeFileSync(broken, '');
  chmodSync(broken, 0o644);
  const { status, stderr } = spawnSync(oldNode!, [launcher, 'echo'], { encoding: 'utf8' });
  expect(status).toBe(1);
  expect(stderr).toMatch(/could not be started .*; run "npm ci"/);
});
