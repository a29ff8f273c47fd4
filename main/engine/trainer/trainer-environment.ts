import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '../../node/project-root.ts';
import { checkVenv, ensureVenv, removeVenv, type VenvOptions, type VenvRecipe } from '../process/python-venv.ts';

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
export async function ensureTrainerEnvironment(options: VenvOptions): Promise<TrainerEnvironment> {
  const given = process.env[trainerPythonVariable];
  if (given !== undefined && given !== '') return { python: given, description: `${trainerPythonVariable}: ${given}` };
  const { python, version, requirements } = await ensureVenv(trainerVenv, options);
  const pins = new Map([...requirements.matchAll(/^([a-z0-9-]+)==(\S+)/gm)].map((match) => [match[1], match[2]]));
  return {
    python,
    description: `Python ${version} with ${MODULES.map((name) => `${name} ${pins.get(name)}`).join(', ')}`,
  };
}

/**
 * The environment, proved by importing its packages (seconds). `build` also makes one that is missing and one that does
 * not work anew. Errors: those of `ensureVenv` and `checkVenv`.
 */
export async function checkTrainerEnvironment(options: VenvOptions): Promise<TrainerEnvironment> {
  const environment = await ensureTrainerEnvironment(options);
  try {
    await checkVenv(environment, trainerVenv);
    return environment;
  } catch (error) {
    if (options.build === false || environment.description.startsWith(trainerPythonVariable)) throw error;
  }
  await removeVenv(trainerVenv, options);
  return ensureTrainerEnvironment(options);
}
