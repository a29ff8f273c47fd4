import { inferenceEnvironment } from '../endpoints/inference-environment.ts';

/** What torch and its libraries read beside what any process of ours gets. */
const families = /^(TORCH|PYTORCH|TRITON|MKL|KMP|OPENBLAS|NCCL|CUBLAS|XDG)_/;

/**
 * The trainer's environment: what finds programs and devices, no secrets, and no way to take packages from elsewhere or
 * to look for models in the network.
 */
export function trainerEnvironment(from: NodeJS.ProcessEnv): Record<string, string> {
  const libraries = Object.entries(from).filter(
    (entry): entry is [string, string] => families.test(entry[0]) && entry[1] !== undefined,
  );
  return {
    ...inferenceEnvironment(from, false),
    ...Object.fromEntries(libraries),
    PYTHONNOUSERSITE: '1',
    PYTHONDONTWRITEBYTECODE: '1',
    PYTHONUTF8: '1',
    PYTHONUNBUFFERED: '1',
    HF_HUB_OFFLINE: '1',
    // Bars fill the lines that are kept for the day it dies.
    TQDM_DISABLE: '1',
  };
}
