import { ensureVenv, type VenvRecipe } from '../python-venv.ts';

/** An engine to be killed while it makes an environment: `node ... RECIPE ROOT`; says each step. */
const [recipe = '', root = ''] = process.argv.slice(2);
await ensureVenv(JSON.parse(recipe) as VenvRecipe, { root, onProgress: (line) => void process.send?.(line) });
