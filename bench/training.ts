import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { dataFolderOf } from '../main/cli/command-context.ts';
import { ensureTrainerEnvironment } from '../main/engine/trainer/trainer-environment.ts';
import { projectRoot } from '../main/node/project-root.ts';

/**
 * Runs native/trainer/bench_train.py with the trainer's Python, all arguments passed on. About eight minutes a run on two
 * idle cores; the ratios say what they are of.
 */
const { python, description } = await ensureTrainerEnvironment({
  root: join(dataFolderOf(undefined), 'python'),
  onProgress: (message) => console.error(message),
});
console.error(`With ${description}.`);
const child = spawn(python, ['-m', 'trainer.bench_train', ...process.argv.slice(2)], {
  cwd: join(projectRoot, 'native'),
  stdio: 'inherit',
});
child.on('exit', (code) => {
  process.exitCode = code ?? 1;
});
