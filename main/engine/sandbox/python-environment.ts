import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { cancelled, MassError } from '../../common/base/errors.ts';
import { resourcePath } from '../../node/project-root.ts';

/** A locked Python with scientific packages, ready to be mounted into the sandbox. */
export interface PythonEnvironment {
  /** Absolute path of the venv on the host. */
  readonly folder: string;
  /** For CommandRequest.readOnlyMounts. */
  readonly mounts: Readonly<Record<string, string>>;
  /** For CommandRequest.env: finds `python` and `python3`, keeps BLAS within its share of cores, plots without a display. */
  readonly env: Readonly<Record<string, string>>;
  /** One line for the model that names the packages at hand and their versions. */
  readonly description: string;
}

export interface PythonEnvironmentOptions {
  /** Folder that holds environments, e.g. `<data folder>/python`; made when missing. */
  readonly root: string;
  readonly onProgress?: (message: string) => void;
  readonly signal?: AbortSignal;
  /** false: only look for a finished one, and throw `prerequisite` when there is none. */
  readonly build?: boolean;
  /** Threads of numeric libraries in one command. */
  readonly threads?: number;
  /** Folders to look for a Python in, as PATH. */
  readonly searchPath?: string;
}

const INSIDE_FOLDER = '/opt/mass-python';
const MODULES = ['numpy', 'pandas', 'scipy', 'sklearn', 'matplotlib'];
const OFFERED = ['numpy', 'pandas', 'scipy', 'scikit-learn', 'matplotlib'];
// The pins have wheels for these and only these.
const INTERPRETERS = ['python3.11', 'python3.12', 'python3.13', 'python3'];
const READY_FILE = 'mass-ready.json';
const INSTALL_HINT =
  'install Python 3.11 to 3.13 with its venv module (Debian: `apt-get install -y python3 python3-venv`)';
const Ready = z.strictObject({ requirements: z.string(), version: z.string(), basePrefix: z.string() });
type Ready = z.infer<typeof Ready>;

/**
 * Makes the environment once per `root`; a second call finds it and does no work. It is built under a temporary name,
 * proved by importing every package, locked read-only and renamed, so a kill at any moment leaves nothing half-made in use.
 * Throws `prerequisite` without a suitable Python, `infrastructure` when packages cannot be fetched or imported.
 */
export async function ensurePythonEnvironment(options: PythonEnvironmentOptions): Promise<PythonEnvironment> {
  const requirementsFile = resourcePath('python/requirements.txt');
  const requirements = await readFile(requirementsFile, 'utf8');
  const hash = createHash('sha256').update(requirements).digest('hex');
  const folder = path.join(options.root, `env-${hash.slice(0, 16)}`);
  const found = await readReady(folder, hash);
  if (!found && options.build === false)
    throw new MassError('prerequisite', 'The Python environment has not been made yet; the first run makes it.');
  const ready = found ?? (await build({ folder, hash, requirementsFile, options }));
  return describe({ folder, ready, requirements, threads: options.threads ?? 1 });
}

async function readReady(folder: string, hash: string): Promise<Ready | null> {
  try {
    const ready = Ready.parse(JSON.parse(await readFile(path.join(folder, READY_FILE), 'utf8')));
    // The interpreter lies outside: an upgrade of the system's Python removes it.
    fs.accessSync(path.join(folder, 'bin', 'python'), fs.constants.X_OK);
    return ready.requirements === hash ? ready : null;
  } catch {
    return null; // Absent or damaged: it is built anew.
  }
}

async function build(target: {
  folder: string;
  hash: string;
  requirementsFile: string;
  options: PythonEnvironmentOptions;
}): Promise<Ready> {
  const { folder, hash, options } = target;
  const progress = options.onProgress ?? ((): void => undefined);
  await mkdir(options.root, { recursive: true, mode: 0o700 });
  const python = await findPython(options);
  const temporary = `${folder}.${process.pid}.tmp`;
  try {
    progress(`Making a Python ${python.version} environment (about 400 MB, once)`);
    await run(
      python.program,
      ['-m', 'venv', '--clear', temporary],
      options,
      `Python has no venv module; ${INSTALL_HINT}.`,
    );
    const inner = path.join(temporary, 'bin', 'python');
    progress(`Fetching ${OFFERED.join(', ')}`);
    const pip = ['-m', 'pip', 'install', '--require-hashes', '--only-binary', ':all:', '--no-input', '--no-compile'];
    const offline =
      'Python packages could not be fetched; check the network and the package index of pip, then run again.';
    await run(inner, [...pip, '--disable-pip-version-check', '-q', '-r', target.requirementsFile], options, offline);
    progress('Compiling and checking the packages');
    await run(
      inner,
      ['-m', 'compileall', '-q', '-j', '2', path.join(temporary, 'lib')],
      options,
      'Python could not compile its packages.',
      [1],
    );
    await run(
      inner,
      ['-c', `import ${MODULES.join(', ')}`],
      options,
      'The Python packages were fetched but do not load on this machine.',
    );
    const ready = { requirements: hash, version: python.version, basePrefix: python.basePrefix };
    await writeFile(path.join(temporary, READY_FILE), JSON.stringify(ready));
    await lock(temporary);
    await removeFolder(folder);
    await rename(temporary, folder);
    return ready;
  } finally {
    await removeFolder(temporary);
  }
}

const Probe = z.object({ version: z.string(), basePrefix: z.string(), executable: z.string(), fits: z.boolean() });

async function findPython(options: PythonEnvironmentOptions): Promise<z.infer<typeof Probe> & { program: string }> {
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

async function run(
  program: string,
  args: readonly string[],
  options: PythonEnvironmentOptions,
  failure: string,
  tolerated: readonly number[] = [],
): Promise<void> {
  try {
    await promisify(execFile)(program, [...args], {
      maxBuffer: 16 * 1024 * 1024,
      ...(options.signal ? { signal: options.signal } : {}),
    });
  } catch (error) {
    if (options.signal?.aborted) throw cancelled('Making the Python environment was cancelled.');
    const { code, stderr } = error as { code?: unknown; stderr?: string };
    if (typeof code === 'number' && tolerated.includes(code)) return;
    const kind = failure.includes('venv') ? 'prerequisite' : 'infrastructure';
    throw new MassError(kind, failure, { cause: new Error(stderr?.trim().slice(-2000) || String(error)) });
  }
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

function describe(parts: { folder: string; ready: Ready; requirements: string; threads: number }): PythonEnvironment {
  const { folder, ready, requirements } = parts;
  const threads = String(parts.threads);
  const pins = new Map([...requirements.matchAll(/^([a-z0-9-]+)==(\S+)/gm)].map((match) => [match[1], match[2]]));
  return {
    folder,
    mounts: { [folder]: INSIDE_FOLDER, ...baseMounts(ready.basePrefix) },
    env: {
      PATH: `${INSIDE_FOLDER}/bin:/usr/local/bin:/usr/bin:/bin`,
      OMP_NUM_THREADS: threads,
      OPENBLAS_NUM_THREADS: threads,
      MKL_NUM_THREADS: threads,
      NUMEXPR_NUM_THREADS: threads,
      LOKY_MAX_CPU_COUNT: threads,
      MPLBACKEND: 'Agg',
      MPLCONFIGDIR: '/tmp/matplotlib',
      PYTHONDONTWRITEBYTECODE: '1',
      PYTHONNOUSERSITE: '1',
    },
    description: `Python ${ready.version} with ${OFFERED.map((name) => `${name} ${pins.get(name)}`).join(', ')}; no network, so nothing else can be installed.`,
  };
}

/**
 * A venv points at the interpreter it was made from. /usr is inside anyway; a Python elsewhere is mounted at its own
 * path, and only the folders it is made of: a prefix such as ~/.local holds other things too.
 */
function baseMounts(basePrefix: string): Record<string, string> {
  if (basePrefix === '/usr' || basePrefix.startsWith('/usr/')) return {};
  const folders = ['bin', 'lib', 'lib64'].map((name) => path.join(basePrefix, name));
  const real = folders.filter((folder) => fs.lstatSync(folder, { throwIfNoEntry: false })?.isDirectory());
  return Object.fromEntries(real.map((folder) => [folder, folder]));
}
