import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  ensureTrainerEnvironment,
  ensureWorkingTrainerEnvironment,
  trainerPythonVariable,
  trainerRemedy,
} from './trainer-environment.ts';

const root = mkdtempSync(join(tmpdir(), 'mass-trainer-environment-'));
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(root, { recursive: true, force: true });
});

describe('the Python of the trainer', () => {
  it('is the private one, which is not there until it is made', async () => {
    vi.stubEnv(trainerPythonVariable, '');
    await expect(ensureTrainerEnvironment({ root, build: false })).rejects.toMatchObject({ code: 'prerequisite' });
    expect(trainerRemedy()).toBe('mass doctor --repair');
  });

  it('is the one that was given, which is looked at and never mended', async () => {
    vi.stubEnv(trainerPythonVariable, 'python3');
    await expect(ensureTrainerEnvironment({ root })).resolves.toMatchObject({ python: 'python3' });
    vi.stubEnv(trainerPythonVariable, '/nowhere/python');
    await expect(ensureWorkingTrainerEnvironment({ root })).rejects.toMatchObject({
      code: 'infrastructure',
      message: 'torch, transformers, peft do not load in /nowhere/python.',
    });
    expect(trainerRemedy()).toMatch(/unset MASS_TRAINER_PYTHON$/);
  });
});
