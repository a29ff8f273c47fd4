import { mkdirSync, mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isInnerPath, readTask, readTaskLibrary, taskFileLimits } from './task-library.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-library-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const manifest = (over: Record<string, unknown> = {}) => ({
  id: 'alpha',
  number: 1,
  title: 'Alpha',
  domain: 'neutral',
  deliverables: [{ path: 'report.md', kind: 'report' }],
  ...over,
});

function addTask(name: string, over: Record<string, unknown> = {}): string {
  const folder = join(root, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'task.json'), JSON.stringify(manifest(over)));
  writeFileSync(join(folder, 'prompt.md'), 'Measure it.');
  writeFileSync(join(folder, 'workflow.json'), '{"agents":[],"hops":[]}\n');
  return folder;
}

describe('readTaskLibrary', () => {
  it('reads the shipped tasks, sorted by number, with their bytes untouched', async () => {
    const tasks = await readTaskLibrary('builtin');
    expect(tasks.map((t) => t.manifest.number)).toEqual([12, 214, 318]);
    expect(tasks[0]?.barePrompt).toMatch(/^# Does the analyst score pay after costs\?\n/);
    expect(tasks[0]?.initialWorkflow.endsWith('}\n')).toBe(true);
  });

  it('sorts by number and ignores dot folders and loose files', async () => {
    addTask('b', { id: 'b', number: 2 });
    addTask('a', { id: 'a', number: 10 });
    mkdirSync(join(root, '.git'));
    writeFileSync(join(root, 'notes.txt'), 'x');
    expect((await readTaskLibrary(root)).map((t) => t.manifest.id)).toEqual(['b', 'a']);
  });

  it('says what to do when the library is missing or empty', async () => {
    await expect(readTaskLibrary(join(root, 'none'))).rejects.toMatchObject({
      code: 'not_found',
      message: /name a folder/,
    });
    await expect(readTaskLibrary(root)).rejects.toMatchObject({ code: 'not_found', message: /holds no task; add/ });
  });

  it('refuses two tasks with one id or one number, naming both folders', async () => {
    addTask('a', { id: 'same' });
    addTask('b', { id: 'same', number: 2 });
    await expect(readTaskLibrary(root)).rejects.toMatchObject({
      code: 'conflict',
      message: /\/a and .*\/b .*same id same/,
    });
    addTask('b', { id: 'other', number: 1 });
    await expect(readTaskLibrary(root)).rejects.toMatchObject({ code: 'conflict', message: /same number 1;/ });
  });
});

describe('readTask', () => {
  it('hashes manifest, prompt, workflow and script: a change of any is another task', async () => {
    const folder = addTask('a', { data: { script: 'data.py', seed: 1, files: ['x.csv'] } });
    writeFileSync(join(folder, 'data.py'), 'pass\n');
    const hashes = [(await readTask(folder)).contentHash];
    expect((await readTask(folder)).contentHash).toBe(hashes[0]);
    for (const [name, text] of [
      ['data.py', 'pass \n'],
      ['prompt.md', 'Measure it!'],
      ['workflow.json', '{"agents":[],"hops":[]}'],
      ['task.json', JSON.stringify(manifest({ title: 'B', data: { script: 'data.py', seed: 1, files: ['x.csv'] } }))],
    ] as const) {
      writeFileSync(join(folder, name), text);
      hashes.push((await readTask(folder)).contentHash);
    }
    expect(new Set(hashes).size).toBe(5);
  });

  it.each(['task.json', 'prompt.md', 'workflow.json'])('names a missing %s', async (name) => {
    const folder = addTask('a');
    unlinkSync(join(folder, name));
    await expect(readTask(folder)).rejects.toMatchObject({
      code: 'not_found',
      message: `The task ${folder} has no ${name}; add the file or remove the folder.`,
    });
  });

  it('names a missing data script', async () => {
    const folder = addTask('a', { data: { script: 'data.py', seed: 1, files: ['x.csv'] } });
    await expect(readTask(folder)).rejects.toMatchObject({ code: 'not_found', message: /has no data\.py/ });
  });

  it('gives the place of a JSON mistake', async () => {
    const folder = addTask('a');
    writeFileSync(join(folder, 'task.json'), '{\n  "id": alpha\n}');
    await expect(readTask(folder)).rejects.toMatchObject({
      code: 'invalid_input',
      message: /task\.json of .* line 2, column 9/,
    });
    addTask('a');
    writeFileSync(join(folder, 'workflow.json'), '{"agents": [');
    await expect(readTask(folder)).rejects.toMatchObject({
      code: 'invalid_input',
      message: /workflow\.json of .* line 1, column 13/,
    });
  });

  it('names a wrong field', async () => {
    const folder = addTask('a', { number: -1 });
    await expect(readTask(folder)).rejects.toMatchObject({ code: 'invalid_input', message: /wrong field \(number: / });
  });

  it('refuses files that are too large, empty, not UTF-8 or links', async () => {
    const folder = addTask('a');
    const prompt = join(folder, 'prompt.md');
    writeFileSync(prompt, 'x'.repeat(taskFileLimits.prompt + 1));
    await expect(readTask(folder)).rejects.toMatchObject({
      code: 'invalid_input',
      details: { bytes: 262_145, limit: 262_144 },
    });
    writeFileSync(prompt, ' \n');
    await expect(readTask(folder)).rejects.toMatchObject({ message: /prompt\.md .* is empty/ });
    writeFileSync(prompt, Buffer.from([0x61, 0xff, 0xfe]));
    await expect(readTask(folder)).rejects.toMatchObject({ message: /not UTF-8/ });
    unlinkSync(prompt);
    symlinkSync('/etc/hostname', prompt);
    await expect(readTask(folder)).rejects.toMatchObject({ message: /not a plain file/ });
  });

  it('refuses paths that leave the folder and paths named twice', async () => {
    const data = (script: string, files: string[]) => ({ data: { script, seed: 1, files } });
    for (const over of [
      data('../x.py', ['a.csv']),
      data('d.py', ['/etc/passwd']),
      { deliverables: [{ path: 'a/../../b', kind: 'report' }] },
    ])
      await expect(readTask(addTask('a', over))).rejects.toMatchObject({
        code: 'invalid_input',
        message: /relative path inside/,
      });
    await expect(readTask(addTask('a', data('d.py', ['a.csv', 'a.csv'])))).rejects.toMatchObject({
      message: /"a\.csv" twice/,
    });
  });
});

it('isInnerPath accepts only relative paths that stay inside', () => {
  expect(['a', 'a/b.csv', './a', 'a/../b'].map(isInnerPath)).toEqual([true, true, true, true]);
  expect(['', '.', '..', '/a', '../a', 'a/../../b', 'a\0b'].map(isInnerPath)).toEqual(Array(7).fill(false));
});
