import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { z } from 'zod';
import { cancelled, MassError } from '../../common/base/errors.ts';
import { requireFreeBytes } from '../../node/free-disk.ts';

/** A private Python environment, as it is to be. */
export interface VenvRecipe {
  /** Its folder is `<root>/<prefix>-<16 hex of the requirements' hash>`. */
  readonly prefix: string;
  readonly requirementsFile: string;
  readonly pipArguments: readonly string[];
  /** Imported as proof that it works. */
  readonly modules: readonly string[];
  /** Said first: what is made, with its size. */
  readonly announcement: string;
  /** Packages to name while they are fetched. */
  readonly packages: string;
  /** Free space below which nothing is begun. */
  readonly bytes: number;
  /** Takes write permission from everything and lets every user read. */
  readonly locked: boolean;
}

export interface VenvOptions {
  /** Folder that holds environments, e.g. `<data folder>/python`; made when missing. */
  readonly root: string;
  readonly onProgress?: (message: string) => void;
  readonly signal?: AbortSignal;
  /** false: only look for a finished one, and throw `prerequisite` when there is none. */
  readonly build?: boolean;
  /** Folders to look for a Python in, as PATH. */
  readonly searchPath?: string;
}

export interface Venv {
  readonly folder: string;
  readonly python: string;
  /** of the interpreter */
  readonly version: string;
  readonly basePrefix: string;
  /** text of the requirements it was made from */
  readonly requirements: string;
}

// The pins have wheels for these and only these.
const INTERPRETERS = ['python3.11', 'python3.12', 'python3.13', 'python3'];
const READY_FILE = 'mass-ready.json';
const INSTALL_HINT =
  'install Python 3.11 to 3.13 with its venv module (Debian: `apt-get install -y python3 python3-venv`)';
/** A package of this size is worth a line of its own while it is fetched. */
const LARGE_DOWNLOAD = /^\s*Downloading (\S+)\s+\((\d+(?:\.\d+)?) (MB|GB)\)/;
const LARGE_MB = 50;
const Ready = z.strictObject({ requirements: z.string(), version: z.string(), basePrefix: z.string() });
type Ready = z.infer<typeof Ready>;
const building = new Map<string, Promise<unknown>>();

/**
 * Makes the environment once per `root`; a second call finds it and does no work. It is built under a temporary name,
 * proved by importing its packages and renamed, so a kill at any moment leaves nothing half-made in use.
 * Errors: `prerequisite` without a suitable Python, without space, or when it is missing and `build` is false;
 * `infrastructure` when packages cannot be fetched or imported; `cancelled`.
 */
export async function ensureVenv(recipe: VenvRecipe, options: VenvOptions): Promise<Venv> {
  const { folder, hash, requirements } = await placeOf(recipe, options);
  const found = await readReady(folder, hash);
  if (found) return venvOf(folder, found, requirements);
  if (options.build === false)
    throw new MassError('prerequisite', 'The Python environment has not been made yet; the first run makes it.');
  // A run and a repair may want it at once: the second waits for the first, and builds when that one failed.
  for (let other = building.get(folder); other; other = building.get(folder)) {
    await other.catch(() => undefined);
    const made = await readReady(folder, hash);
    if (made) return venvOf(folder, made, requirements);
  }
  const work = build({ folder, hash, recipe, options }).finally(() => building.delete(folder));
  building.set(folder, work);
  return venvOf(folder, await work, requirements);
}

/**
 * As `ensureVenv`, and proved by importing its packages, which takes seconds; one that does not work is made anew unless
 * `build` is false. Errors: also `infrastructure` with what Python said.
 */
export async function ensureWorkingVenv(recipe: VenvRecipe, options: VenvOptions): Promise<Venv> {
  const venv = await ensureVenv(recipe, options);
  try {
    await importModules(venv.python, recipe.modules, options.signal);
    return venv;
  } catch (error) {
    if (options.build === false || options.signal?.aborted) throw error;
  }
  await removeFolder(venv.folder);
  return ensureVenv(recipe, options);
}

/** Errors: `infrastructure` with what Python said, when a module does not load. */
export async function importModules(python: string, modules: readonly string[], signal?: AbortSignal): Promise<void> {
  await runQuietly(python, ['-c', `import ${modules.join(', ')}`], {
    signal,
    failure: `${modules.join(', ')} do not load in ${python}.`,
  });
}

async function placeOf({ prefix, requirementsFile }: VenvRecipe, { root }: Pick<VenvOptions, 'root'>) {
  const requirements = await readFile(requirementsFile, 'utf8');
  const hash = createHash('sha256').update(requirements).digest('hex');
  return { folder: path.join(root, `${prefix}-${hash.slice(0, 16)}`), hash, requirements };
}

const pythonOf = (folder: string): string => path.join(folder, 'bin', 'python');

const venvOf = (folder: string, { version, basePrefix }: Ready, requirements: string): Venv => ({
  folder,
  python: pythonOf(folder),
  version,
  basePrefix,
  requirements,
});

async function readReady(folder: string, hash: string): Promise<Ready | null> {
  try {
    const ready = Ready.parse(JSON.parse(await readFile(path.join(folder, READY_FILE), 'utf8')));
    // The interpreter lies outside: an upgrade of the system's Python removes it.
    fs.accessSync(pythonOf(folder), fs.constants.X_OK);
    return ready.requirements === hash ? ready : null;
  } catch {
    return null; // Absent or damaged: it is built anew.
  }
}

interface BuildTarget {
  readonly folder: string;
  readonly hash: string;
  readonly recipe: VenvRecipe;
  readonly options: VenvOptions;
}

async function build({ folder, hash, recipe, options }: BuildTarget): Promise<Ready> {
  const progress = options.onProgress ?? ((): void => undefined);
  const { signal } = options;
  await mkdir(options.root, { recursive: true, mode: 0o700 });
  await requireFreeBytes(options.root, recipe.bytes, 'The Python environment');
  const python = await findPython(options);
  await removeAbandoned(folder);
  const temporary = `${folder}.${process.pid}.tmp`;
  try {
    progress(`Making a Python ${python.version} environment (${recipe.announcement})`);
    await runQuietly(python.program, ['-m', 'venv', '--clear', temporary], {
      signal,
      code: 'prerequisite',
      failure: `Python has no venv module; ${INSTALL_HINT}.`,
    });
    const inner = pythonOf(temporary);
    progress(`Fetching ${recipe.packages}`);
    await installPackages(inner, { recipe, signal, progress });
    progress('Compiling and checking the packages');
    await runQuietly(inner, ['-m', 'compileall', '-q', '-j', '2', path.join(temporary, 'lib')], {
      signal,
      failure: 'Python could not compile its packages.',
      tolerated: [1],
    });
    await importModules(inner, recipe.modules, signal);
    const ready = { requirements: hash, version: python.version, basePrefix: python.basePrefix };
    await writeFile(path.join(temporary, READY_FILE), JSON.stringify(ready));
    if (recipe.locked) await lock(temporary);
    await removeFolder(folder);
    await rename(temporary, folder);
    return ready;
  } finally {
    await removeFolder(temporary);
  }
}

/** What builds of engines that are gone left behind. */
async function removeAbandoned(folder: string): Promise<void> {
  const { dir, base } = path.parse(folder);
  for (const name of await readdir(dir)) {
    const pid = name.startsWith(`${base}.`) ? Number(/\.(\d+)\.tmp$/.exec(name)?.[1]) : Number.NaN;
    if (Number.isInteger(pid) && !isAlive(pid)) await removeFolder(path.join(dir, name));
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const Probe = z.object({ version: z.string(), basePrefix: z.string(), executable: z.string(), fits: z.boolean() });

/** Errors: `prerequisite` when there is none, saying what to install. */
export async function findPython(
  options: Pick<VenvOptions, 'searchPath'>,
): Promise<z.infer<typeof Probe> & { program: string }> {
  const code =
    'import sys, json; v = sys.version_info; print(json.dumps({"version": "%d.%d.%d" % v[:3], ' +
    '"basePrefix": sys.base_prefix, "executable": sys.executable, "fits": (3, 11) <= v[:2] <= (3, 13)}))';
  for (const name of INTERPRETERS) {
    try {
      const { stdout } = await promisify(execFile)(name, ['-c', code], {
        env: { ...process.env, ...(options.searchPath === undefined ? {} : { PATH: options.searchPath }) },
        timeout: 30_000,
      });
      const found = Probe.parse(JSON.parse(stdout));
      // The interpreter itself, not a version manager's shim, which picks by folder.
      if (found.fits) return { ...found, program: found.executable || name };
    } catch {
      // Not installed under this name, or a shim without a version: the next name.
    }
  }
  throw new MassError('prerequisite', `No suitable Python was found; ${INSTALL_HINT}.`);
}

interface Command {
  readonly signal?: AbortSignal | undefined;
  /** sentence for a person when it fails */
  readonly failure: string;
  readonly code?: 'prerequisite' | 'infrastructure';
  /** exit codes that are no failure */
  readonly tolerated?: readonly number[];
  readonly onLine?: (line: string) => void;
}

interface Install {
  readonly recipe: VenvRecipe;
  readonly signal: AbortSignal | undefined;
  readonly progress: (message: string) => void;
}

/** By pip, from the index that the user's configuration names. */
async function installPackages(python: string, { recipe, signal, progress }: Install): Promise<void> {
  const pip = ['-m', 'pip', 'install', '--only-binary', ':all:', '--no-input', '--no-compile', '--progress-bar', 'off'];
  const install = [...pip, '--disable-pip-version-check', ...recipe.pipArguments, '-r', recipe.requirementsFile];
  await runQuietly(python, install, {
    signal,
    failure: 'Python packages could not be fetched; check the network and the package index of pip, then run again.',
    onLine: (line) => {
      const [, file = '', amount = '', unit] = LARGE_DOWNLOAD.exec(line) ?? [];
      if (Number(amount) * (unit === 'GB' ? 1000 : 1) >= LARGE_MB) progress(`Fetching ${file} (${amount} ${unit})`);
    },
  });
}

/** Runs a program in a group of its own, which ends with the signal. */
async function runQuietly(program: string, args: readonly string[], command: Command): Promise<void> {
  const { signal, failure, code = 'infrastructure', tolerated = [], onLine } = command;
  const stopped = (): MassError => cancelled('Making the Python environment was cancelled.');
  if (signal?.aborted) throw stopped();
  const child = spawn(program, [...args], { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const kill = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended already.
    }
  };
  signal?.addEventListener('abort', kill, { once: true });
  let tail = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    tail = (tail + text).slice(-4000);
  });
  createInterface({ input: child.stdout }).on('line', (line) => onLine?.(line));
  const exit = await new Promise<number | string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (exitCode, by) => resolve(exitCode ?? String(by)));
  });
  signal?.removeEventListener('abort', kill);
  if (signal?.aborted) throw stopped();
  if (exit === 0 || (typeof exit === 'number' && tolerated.includes(exit))) return;
  if (tail.includes('No space left on device'))
    throw new MassError('prerequisite', 'The disk is full; free space, then run again.', { cause: new Error(tail) });
  throw new MassError(code, failure, { cause: new Error(tail.trim().slice(-2000) || String(exit)) });
}

/** Takes write permission from every file and folder, and lets every user read: commands run as somebody else. */
async function lock(entry: string): Promise<void> {
  const stat = await lstat(entry);
  if (stat.isSymbolicLink()) return;
  if (stat.isDirectory()) for (const name of await readdir(entry)) await lock(path.join(entry, name));
  await chmod(entry, stat.isDirectory() || stat.mode & 0o100 ? 0o555 : 0o444);
}

/** Removes a tree whose folders may be read-only. */
async function removeFolder(folder: string): Promise<void> {
  const stat = await lstat(folder).catch(() => null); // Absent: nothing to do.
  if (!stat) return;
  const unlock = async (entry: string): Promise<void> => {
    await chmod(entry, 0o700);
    for (const child of await readdir(entry, { withFileTypes: true }))
      if (child.isDirectory()) await unlock(path.join(entry, child.name));
  };
  await unlock(folder);
  await rm(folder, { recursive: true, force: true });
}
