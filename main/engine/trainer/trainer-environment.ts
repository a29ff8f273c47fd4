import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '../../node/project-root.ts';
import {
  ensureVenv,
  ensureWorkingVenv,
  importModules,
  type VenvOptions,
  type VenvRecipe,
} from '../process/python-venv.ts';

export interface TrainerEnvironment {
  /** Absolute path of the interpreter. */
  readonly python: string;
  /** for people: versions, or where it comes from */
  readonly description: string;
}

/** Names the Python of an environment to use instead of the private one: for tests and development. */
export const trainerPythonVariable = 'MASS_TRAINER_PYTHON';

const MODULES = ['torch', 'transformers', 'peft'];
/** With CUDA's libraries torch is about 8 GB, and pip unpacks beside what it keeps. */
const needed = existsSync('/dev/nvidiactl') ? 12e9 : 3e9;

export const trainerVenv: VenvRecipe = {
  prefix: 'trainer',
  requirementsFile: join(projectRoot, 'native', 'trainer', 'requirements.txt'),
  pipArguments: [],
  modules: MODULES,
  announcement: 'for the trainer: about 2 GB, with CUDA about 8 GB, once',
  packages: MODULES.join(', '),
  bytes: needed,
  locked: false,
};

/** The trainer's private Python; see `ensureVenv` for when it is made, and for errors. */
export const ensureTrainerEnvironment = (options: VenvOptions): Promise<TrainerEnvironment> =>
  trainerEnvironmentBy(ensureVenv, options);

/** The same, proved by importing its packages; see `ensureWorkingVenv`. One that was given is not mended. */
export async function ensureWorkingTrainerEnvironment(options: VenvOptions): Promise<TrainerEnvironment> {
  const given = givenPython();
  if (given !== null) await importModules(given.python, MODULES, options.signal);
  return given ?? trainerEnvironmentBy(ensureWorkingVenv, options);
}

/** What mends an environment that does not work. */
export const trainerRemedy = (): string =>
  givenPython() === null
    ? 'mass doctor --repair'
    : `install native/trainer/requirements.txt there, or unset ${trainerPythonVariable}`;

async function trainerEnvironmentBy(ensure: typeof ensureVenv, options: VenvOptions): Promise<TrainerEnvironment> {
  const given = givenPython();
  if (given !== null) return given;
  const { python, version, requirements } = await ensure(trainerVenv, options);
  const pins = new Map([...requirements.matchAll(/^([a-z0-9-]+)==(\S+)/gm)].map((match) => [match[1], match[2]]));
  return {
    python,
    description: `Python ${version} with ${MODULES.map((name) => `${name} ${pins.get(name)}`).join(', ')}`,
  };
}

function givenPython(): TrainerEnvironment | null {
  const python = process.env[trainerPythonVariable];
  if (python === undefined || python === '') return null;
  return { python, description: `${python}, given by ${trainerPythonVariable}` };
}
