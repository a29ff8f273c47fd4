#!/usr/bin/env node
// Brings a fresh machine to the point where the project can run. Plain JavaScript without dependencies: it runs under
// Node 20 before anything is installed. Usage: node main/cli/setup/setup.mjs [--chromium]
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, constants, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const project = fileURLToPath(new URL('../../../', import.meta.url));

class SetupError extends Error {}

/** True when a program of this name is on PATH. */
function hasProgram(name) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false; // not in this folder
    }
  });
}

function run(command, args, env = process.env) {
  const shell = process.platform === 'win32'; // npm is a .cmd file there
  const { status, signal, error } = spawnSync(command, args, { cwd: project, stdio: 'inherit', env, shell });
  if (error) throw new SetupError(`${command} could not be started (${error.message}); install it and run this again.`);
  if (status !== 0)
    throw new SetupError(
      `"${command} ${args.join(' ')}" ended with ${signal ?? `exit code ${status}`}; see its output above.`,
    );
}

/** True when an installation that nobody stamped (a plain `npm ci`) holds what the lock names. */
function matchesLock(lockText) {
  const hidden = join(project, 'node_modules/.package-lock.json'); // npm writes it last
  if (!existsSync(hidden)) return false;
  try {
    const wanted = JSON.parse(lockText).packages;
    const installed = JSON.parse(readFileSync(hidden, 'utf8')).packages;
    return Object.entries(wanted).every(([path, { version, optional, link }]) => {
      if (path === '' || link) return true;
      const found = installed[path];
      return found ? found.version === version : optional === true;
    });
  } catch {
    return false; // not readable as npm's file: install again
  }
}

/** Runs `npm ci` unless node_modules already holds what package-lock.json names. */
function ensureNodeModules() {
  const lockText = readFileSync(join(project, 'package-lock.json'), 'utf8');
  const hash = createHash('sha256').update(lockText).digest('hex');
  const stamp = join(project, 'node_modules/.mass-lock');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  if (!matchesLock(lockText)) {
    console.log('Installing Node packages (npm ci) ...');
    run('npm', ['ci', '--no-audit', '--no-fund']);
  }
  writeFileSync(stamp, hash);
}

/** Installs a Debian package when `programs` are all missing and this is root; otherwise names the command to type. */
function ensureProgram({ programs, debianPackage, purpose, otherwise }) {
  if (programs.some(hasProgram)) return;
  const command = `apt-get update && apt-get install -y ${debianPackage}`;
  if (!hasProgram('apt-get'))
    throw new SetupError(
      `${programs[0]} is missing (${purpose}); install it with this system's package manager${otherwise}.`,
    );
  if (process.getuid?.() !== 0)
    throw new SetupError(`${programs[0]} is missing (${purpose}); type: sudo sh -c "${command}"${otherwise}`);
  console.log(`Installing ${debianPackage} (${purpose}) ...`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  run('apt-get', ['update', '-q'], env);
  run('apt-get', ['install', '-y', '-q', debianPackage], env);
  if (!programs.some(hasProgram))
    throw new SetupError(`${debianPackage} was installed but ${programs[0]} is not on PATH; add its folder to PATH.`);
}

function ensureSystem({ chromium }) {
  if (process.platform === 'linux')
    ensureProgram({
      programs: ['bwrap'],
      debianPackage: 'bubblewrap',
      purpose: 'the sandbox for commands the model writes',
      otherwise: '',
    });
  if (chromium)
    ensureProgram({
      programs: ['chromium', 'chromium-browser', 'google-chrome'],
      debianPackage: 'chromium',
      purpose: 'the browser tests',
      otherwise: ', or leave out --chromium',
    });
}

try {
  const unknown = process.argv.slice(2).find((argument) => argument !== '--chromium');
  if (unknown !== undefined) {
    console.error(`Unknown argument ${unknown}; the only one is --chromium.`);
    process.exit(2);
  }
  ensureNodeModules();
  ensureSystem({ chromium: process.argv.includes('--chromium') });
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.error(error.message);
  process.exit(1);
}
