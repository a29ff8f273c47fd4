import { createHash } from 'node:crypto';
import { lstat, open, readdir } from 'node:fs/promises';
import { isAbsolute, join, normalize, resolve, sep } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { parseJson } from '../../common/base/parse-json.ts';
import { parseWith } from '../../common/domain/parse-with.ts';
import { type Task, TaskManifest } from '../../common/domain/task.ts';
import { resourcePath } from '../../node/project-root.ts';

/** Largest accepted files, in bytes: what a person writes by hand, with room. */
export const taskFileLimits = { manifest: 64 << 10, prompt: 256 << 10, workflow: 256 << 10, script: 1 << 20 } as const;

const builtinFolder = resourcePath('tasks');

/**
 * Reads every task of a library: a folder with one sub-folder per task, or "builtin" for the shipped ones. Sorted by
 * number. Sub-folders whose name starts with a dot, and files beside the sub-folders, are not tasks.
 * @throws MassError not_found, invalid_input or conflict (two tasks with one id or number)
 */
export async function readTaskLibrary(library: string): Promise<Task[]> {
  const folder = library === 'builtin' ? builtinFolder : resolve(library);
  const entries = await readdir(folder, { withFileTypes: true }).catch((cause: unknown) => {
    throw new MassError(
      'not_found',
      `The task library ${folder} cannot be read; name a folder with one sub-folder per task.`,
      {
        cause,
      },
    );
  });
  const names = entries.filter((e) => e.isDirectory() && !e.name.startsWith('.')).map((e) => e.name);
  if (names.length === 0)
    throw new MassError(
      'not_found',
      `The task library ${folder} holds no task; add one sub-folder per task with task.json, prompt.md and workflow.json.`,
    );
  const tasks: Task[] = [];
  for (const name of names.sort()) tasks.push(await readTask(join(folder, name)));
  refuseDuplicates(tasks);
  return tasks.sort((a, b) => a.manifest.number - b.manifest.number);
}

/**
 * Reads one task folder.
 * @throws MassError not_found (a file is missing) or invalid_input (too large, not text, not JSON, wrong field, empty)
 */
export async function readTask(taskFolder: string): Promise<Task> {
  const folder = resolve(taskFolder);
  const manifestText = await readPart(folder, 'task.json', taskFileLimits.manifest);
  const label = `task.json of ${folder}`;
  const manifest = parseWith(TaskManifest, parseJson(manifestText, label), label);
  refuseOutsidePaths(manifest, label);
  const barePrompt = await readPart(folder, 'prompt.md', taskFileLimits.prompt);
  const initialWorkflow = await readPart(folder, 'workflow.json', taskFileLimits.workflow);
  parseJson(initialWorkflow, `workflow.json of ${folder}`);
  const script = manifest.data ? await readPart(folder, manifest.data.script, taskFileLimits.script) : '';
  const contentHash = hashParts({ manifest: manifestText, prompt: barePrompt, workflow: initialWorkflow, script });
  return { manifest, barePrompt, initialWorkflow, folder, contentHash };
}

/** Text of a file of a task, bounded, strictly UTF-8. Symlinks are refused: a task folder is self-contained. */
async function readPart(folder: string, name: string, limit: number): Promise<string> {
  const path = join(folder, name);
  const status = await lstat(path).catch((cause: unknown) => {
    throw new MassError('not_found', `The task ${folder} has no ${name}; add the file or remove the folder.`, {
      cause,
    });
  });
  if (!status.isFile())
    throw new MassError('invalid_input', `${name} of the task ${folder} is not a plain file; replace it with one.`);
  const tooLarge = (bytes: number): MassError =>
    new MassError(
      'invalid_input',
      `${name} of the task ${folder} has ${bytes} bytes and the limit is ${limit}; shorten it.`,
      { details: { bytes, limit } },
    );
  if (status.size > limit) throw tooLarge(status.size);
  const file = await open(path, 'r');
  let bytes: Buffer;
  try {
    bytes = await file.readFile();
  } finally {
    await file.close();
  }
  if (bytes.length > limit) throw tooLarge(bytes.length); // it grew since the look above
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new MassError('invalid_input', `${name} of the task ${folder} is not UTF-8 text; save it as UTF-8.`, {
      cause,
    });
  }
  if (text.trim() === '')
    throw new MassError('invalid_input', `${name} of the task ${folder} is empty; write it or remove the folder.`);
  return text;
}

/** True for a relative path that stays inside the folder it is relative to. */
export function isInnerPath(path: string): boolean {
  const clean = normalize(path);
  return (
    path !== '' &&
    !isAbsolute(clean) &&
    clean !== '.' &&
    clean !== '..' &&
    !clean.startsWith(`..${sep}`) &&
    !path.includes('\0')
  );
}

function refuseOutsidePaths(manifest: TaskManifest, label: string): void {
  const paths = [
    ...manifest.deliverables.map((d) => d.path),
    ...(manifest.data ? [manifest.data.script, ...manifest.data.files] : []),
  ];
  const outside = paths.find((path) => !isInnerPath(path));
  if (outside !== undefined)
    throw new MassError(
      'invalid_input',
      `${label} names the path "${outside}"; use a relative path inside the folder.`,
    );
  const twice = paths.find((path, i) => paths.indexOf(path) !== i);
  if (twice !== undefined)
    throw new MassError('invalid_input', `${label} names the path "${twice}" twice; give every file its own path.`);
}

function refuseDuplicates(tasks: readonly Task[]): void {
  for (const key of ['id', 'number'] as const) {
    const seen = new Map<string | number, Task>();
    for (const task of tasks) {
      const value = task.manifest[key];
      const other = seen.get(value);
      if (other)
        throw new MassError(
          'conflict',
          `The tasks ${other.folder} and ${task.folder} have the same ${key} ${value}; give one of them another in its task.json.`,
        );
      seen.set(value, task);
    }
  }
}

/** sha256 over named, length-prefixed parts, so that no two different splits of the same bytes collide. */
function hashParts(parts: Record<string, string>): string {
  const hash = createHash('sha256');
  for (const [name, text] of Object.entries(parts)) {
    const bytes = Buffer.from(text);
    hash.update(`${name}:${bytes.length}\n`).update(bytes);
  }
  return hash.digest('hex');
}
