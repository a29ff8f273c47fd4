import fs from 'node:fs';
import path from 'node:path';
import { resourcePath } from '../../node/project-root.ts';
import { ensureVenv, ensureWorkingVenv, type Venv, type VenvOptions, type VenvRecipe } from '../process/python-venv.ts';

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

export interface PythonEnvironmentOptions extends VenvOptions {
  /** Threads of numeric libraries in one command. */
  readonly threads?: number;
}

const INSIDE_FOLDER = '/opt/mass-python';
const OFFERED = ['numpy', 'pandas', 'scipy', 'scikit-learn', 'matplotlib'];

export const commandVenv: VenvRecipe = {
  prefix: 'env',
  requirementsFile: resourcePath('python/requirements.txt'),
  pipArguments: ['--require-hashes'],
  modules: ['numpy', 'pandas', 'scipy', 'sklearn', 'matplotlib'],
  announcement: 'about 400 MB, once',
  packages: OFFERED.join(', '),
  bytes: 1e9,
  locked: true,
};

/** The environment of model-written commands; see `ensureVenv` for when it is made, and for errors. */
export async function ensurePythonEnvironment(options: PythonEnvironmentOptions): Promise<PythonEnvironment> {
  return describe(await ensureVenv(commandVenv, options), options.threads ?? 1);
}

/** The same, proved by importing its packages; see `ensureWorkingVenv`. */
export async function ensureWorkingPythonEnvironment(options: PythonEnvironmentOptions): Promise<PythonEnvironment> {
  return describe(await ensureWorkingVenv(commandVenv, options), options.threads ?? 1);
}

function describe({ folder, version, basePrefix, requirements }: Venv, threadCount: number): PythonEnvironment {
  const threads = String(threadCount);
  const pins = new Map([...requirements.matchAll(/^([a-z0-9-]+)==(\S+)/gm)].map((match) => [match[1], match[2]]));
  return {
    folder,
    mounts: { [folder]: INSIDE_FOLDER, ...baseMounts(basePrefix) },
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
    description: `Python ${version} with ${OFFERED.map((name) => `${name} ${pins.get(name)}`).join(', ')}; no network, so nothing else can be installed.`,
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
