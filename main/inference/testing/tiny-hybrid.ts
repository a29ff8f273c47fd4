import { join } from 'node:path';
import { projectRoot } from '../../node/project-root.ts';
import { exists, hashOf, makeOnce, runTool, testModels } from './test-models.ts';

const scripts = join(projectRoot, 'native', 'trainer', 'testing');

/**
 * Path of a tiny random-weight model of the hybrid Qwen3.5 architecture, made on first use. The file name holds the hash of
 * its script and requirements, so a change of either makes a new one.
 */
export async function tinyHybridModel(): Promise<string> {
  const script = join(scripts, 'make_tiny_hybrid.py');
  const requirements = join(scripts, 'requirements.txt');
  const target = join(testModels, `tiny-hybrid-${await hashOf([script, requirements])}.gguf`);
  return makeOnce(target, async (temporary) => {
    const out = join(temporary, 'model.gguf');
    await runTool(await testPython(requirements), [script, out]);
    return out;
  });
}

/** Python with the packages test models are made with, in a private environment. */
async function testPython(requirements: string): Promise<string> {
  const home = join(projectRoot, '.mass', 'test-python');
  const python = join(home, 'bin', 'python');
  const ready = join(home, `ready-${await hashOf([requirements])}`);
  await makeOnce(ready, async (temporary) => {
    if (!(await exists(python))) await runTool('python3', ['-m', 'venv', home]);
    await runTool(python, ['-m', 'pip', 'install', '--quiet', '-r', requirements]);
    return temporary;
  });
  return python;
}
