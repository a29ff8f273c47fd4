import { execFile } from 'node:child_process';
import { access, mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { cancelled, MassError } from '../../common/base/errors.ts';
import { projectRoot } from '../../node/project-root.ts';

export interface LlamaSourcesOptions {
  /** the data folder: sources go to `<root>/llama.cpp/<release>` */
  readonly root: string;
  readonly signal?: AbortSignal;
  /** git's program; "git" by default */
  readonly git?: string;
}

const packaged = join(projectRoot, 'node_modules', 'node-llama-cpp', 'llama');
/** What the conversions need of llama.cpp's repository, and its licence. */
const paths = ['conversion', 'gguf-py', 'convert_hf_to_gguf.py', 'convert_lora_to_gguf.py', 'LICENSE'];
const Release = z.object({ tag: z.string().regex(/^[\w.-]+$/) });

/**
 * Folder of llama.cpp's conversion scripts, of the release that serves: taken once out of the sources the node-llama-cpp
 * package carries. A folder under its own name is complete, whatever happened to the process that made it.
 * Errors: `prerequisite` without git or without the package's sources, `cancelled`.
 */
export async function ensureLlamaSources(options: LlamaSourcesOptions): Promise<string> {
  const { tag } = Release.parse(JSON.parse(await readFile(join(packaged, 'llama.cpp.info.json'), 'utf8')));
  const folder = join(options.root, 'llama.cpp', tag);
  if (await exists(folder)) return folder;
  await mkdir(dirname(folder), { recursive: true });
  const temporary = await mkdtemp(`${folder}.making-`);
  try {
    const repository = join(temporary, 'repository.git');
    const tree = join(temporary, 'tree');
    await mkdir(tree);
    await git(options, ['clone', '--quiet', '--bare', join(packaged, 'gitRelease.bundle'), repository]);
    await git(options, ['--git-dir', repository, '--work-tree', tree, 'checkout', '--quiet', 'HEAD', '--', ...paths]);
    await rename(tree, folder).catch(async (error: unknown) => {
      // Another run was quicker: what it made is the same.
      if (!(await exists(folder))) throw error;
    });
    return folder;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

async function git({ git: program = 'git', signal }: LlamaSourcesOptions, args: readonly string[]): Promise<void> {
  // GIT_DIR and the like, as a git hook sets them, would point git at another repository.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('GIT_')));
  try {
    await promisify(execFile)(program, [...args], { env, ...(signal ? { signal } : {}) });
  } catch (cause) {
    if (signal?.aborted) throw cancelled('Taking out the conversion scripts was stopped.');
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT')
      throw new MassError(
        'prerequisite',
        'Converting a trained adapter needs git, which is not installed; install it (Debian: `apt-get install -y git`), then run again.',
        { cause },
      );
    throw new MassError(
      'prerequisite',
      "llama.cpp's conversion scripts cannot be taken out of the node-llama-cpp package; install the packages again (npm ci), and see that the disk is not full.",
      { cause },
    );
  }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
