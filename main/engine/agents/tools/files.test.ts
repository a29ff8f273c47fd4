import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { createFileTools } from './files.ts';
import { workspaceNames } from './workspace-folder.ts';

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'mass-files-'));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

let workspace: string;
let count = 0;
beforeEach(() => {
  workspace = path.join(root, `workspace-${count++}`);
  fs.mkdirSync(workspace);
  fs.writeFileSync(path.join(root, 'outside'), 'secret');
});
const inside = (name: string) => path.join(workspace, name);
const tools = (options = {}) => createFileTools({ workspace, ...options });
const refusal = (text: string) =>
  expect.objectContaining({ code: 'invalid_input', message: expect.stringContaining(text) });

describe('work', () => {
  test('writes, reads, edits and lists, with /workspace as another name', async () => {
    await tools().write('notes/a.md', 'one\ntwo\nthree\n');
    expect(await tools().read('/workspace/notes/a.md')).toBe('one\ntwo\nthree\n');
    await tools().edit('./notes//a.md', { find: 'two', replace: '$& zwei' });
    expect(fs.readFileSync(inside('notes/a.md'), 'utf8')).toBe('one\n$& zwei\nthree\n');
    fs.symlinkSync('/etc/passwd', inside('link'));
    expect(await tools().list('/workspace')).toBe('link (symbolic link)\nnotes/');
    expect(await tools().list('notes')).toBe('a.md (18 bytes)');
    expect(fs.readdirSync(inside('notes'))).toEqual(['a.md']);
  });

  test('reads a range of lines and says how to go on', async () => {
    fs.writeFileSync(inside('f'), 'one\ntwo\nthree\nfour');
    expect(await tools().read('f', { offset: 2, limit: 2 })).toBe(
      'two\nthree\n[line 4 follows; the file has 18 bytes; go on with offset 4]',
    );
    expect(await tools().read('f', { offset: 4 })).toBe('four');
    await expect(tools().read('f', { offset: 9 })).rejects.toEqual(refusal('fewer than 9 lines'));
    await expect(tools().read('f', { offset: 0 })).rejects.toEqual(refusal('starts at 1'));
  });

  test('a huge file is read in bounded memory', async () => {
    fs.writeFileSync(inside('sparse'), 'head of it\n');
    fs.truncateSync(inside('sparse'), 2 ** 32);
    expect(await tools().read('sparse', { limit: 1 })).toMatch(
      /^head of it\n\[line 2 follows; the file has 4294967296/,
    );
    fs.writeFileSync(inside('long'), 'x'.repeat(1_000_000));
    expect(await tools({ maxReadBytes: 10 }).read('long')).toBe(
      'xxxxxxxxxx\n[cut within line 1; the file has 1000000 bytes; go on with offset 2]',
    );
  });

  test('any split of lines reads back whole', async () => {
    const line = fc.string({ unit: 'grapheme', maxLength: 20 }).map((text) => text.replaceAll(/[\0\n]/g, ' '));
    await fc.assert(
      fc.asyncProperty(fc.array(line, { minLength: 1, maxLength: 20 }), async (lines) => {
        fs.writeFileSync(inside('p'), lines.map((text) => `${text}\n`).join(''));
        const parts = await Promise.all(lines.map((_, index) => tools().read('p', { offset: index + 1, limit: 1 })));
        expect(parts.map((part) => part.split('\n')[0])).toEqual(lines.map((text) => text.toWellFormed()));
      }),
      { numRuns: 30 },
    );
  });

  test('an edit must find its text exactly once', async () => {
    fs.writeFileSync(inside('f'), 'aaa b');
    await expect(tools().edit('f', { find: 'x', replace: '' })).rejects.toEqual(refusal('does not occur'));
    await expect(tools().edit('f', { find: 'aa', replace: '' })).rejects.toEqual(refusal('more than once'));
    await expect(tools().edit('f', { find: '', replace: 'y' })).rejects.toEqual(refusal('empty'));
    expect(fs.readFileSync(inside('f'), 'utf8')).toBe('aaa b');
  });

  test('what is not text is refused, not damaged', async () => {
    fs.writeFileSync(inside('bin'), Buffer.from([1, 0, 2]));
    fs.writeFileSync(inside('latin'), Buffer.from([0x61, 0xe9, 0x62]));
    await expect(tools().read('bin')).rejects.toEqual(refusal('not text'));
    await expect(tools().edit('latin', { find: 'a', replace: 'b' })).rejects.toEqual(refusal('not UTF-8'));
    expect(fs.readFileSync(inside('latin'))).toEqual(Buffer.from([0x61, 0xe9, 0x62]));
  });

  test('too much content is refused; permissions of a replaced file stay', async () => {
    await expect(tools({ maxWriteBytes: 3 }).write('f', 'four')).rejects.toEqual(refusal('4 bytes and 3 are allowed'));
    fs.writeFileSync(inside('run.sh'), 'old', { mode: 0o755 });
    await tools().write('run.sh', 'new');
    expect(fs.statSync(inside('run.sh')).mode & 0o777).toBe(0o755);
  });

  test.skipIf(process.getuid?.() !== 0)('what is made belongs to the owner of the workspace', async () => {
    const owner = { uid: 64_123, gid: 64_123 };
    await tools({ owner }).write('new/deep/file', 'x');
    for (const name of ['new', 'new/deep', 'new/deep/file'])
      expect([fs.statSync(inside(name)).uid, fs.statSync(inside(name)).gid]).toEqual([64_123, 64_123]);
  });

  test('what is missing is not found', async () => {
    await expect(tools().read('nothing')).rejects.toMatchObject({ code: 'not_found' });
    await expect(tools().list('no/folder')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('boundary', () => {
  test.each([
    ['/etc/passwd', 'outside the workspace'],
    ['/workspaces/x', 'outside the workspace'],
    ['../outside', '".."'],
    ['/workspace/../outside', '".."'],
    ['a/../../outside', '".."'],
    ['a\0b', 'NUL'],
    ['n'.repeat(300), 'too long'],
    ['a/'.repeat(100), 'too deeply'],
    ['', 'the workspace itself'],
  ])('%j is refused for every tool', async (given, reason) => {
    await expect(tools().read(given)).rejects.toEqual(refusal(reason));
    await expect(tools().write(given, 'x')).rejects.toEqual(refusal(reason));
    await expect(tools().edit(given, { find: 's', replace: 'x' })).rejects.toEqual(refusal(reason));
    expect(fs.readFileSync(path.join(root, 'outside'), 'utf8')).toBe('secret');
  });

  test('symbolic links are not followed, as a file or on the way', async () => {
    fs.symlinkSync(path.join(root, 'outside'), inside('file'));
    fs.symlinkSync(root, inside('folder'));
    fs.symlinkSync(path.join(root, 'absent'), inside('dangling'));
    for (const name of ['file', 'folder/outside', 'dangling']) {
      await expect(tools().read(name)).rejects.toEqual(refusal('symbolic link'));
      await expect(tools().write(name, 'x')).rejects.toEqual(refusal('symbolic link'));
      await expect(tools().edit(name, { find: 's', replace: 'x' })).rejects.toEqual(refusal('symbolic link'));
    }
    await expect(tools().list('folder')).rejects.toEqual(refusal('symbolic link'));
    expect(fs.readFileSync(path.join(root, 'outside'), 'utf8')).toBe('secret');
    expect(fs.existsSync(path.join(root, 'absent'))).toBe(false);
  });

  test('hard links, pipes and folders are refused as files', async () => {
    fs.linkSync(path.join(root, 'outside'), inside('hard'));
    execFileSync('mkfifo', [inside('pipe')]);
    fs.mkdirSync(inside('folder'));
    for (const [name, reason] of [
      ['hard', 'hard link'],
      ['pipe', 'special file'],
      ['folder', 'is a folder'],
    ] as const) {
      await expect(tools().read(name)).rejects.toEqual(refusal(reason));
      await expect(tools().write(name, 'x')).rejects.toEqual(refusal(reason));
    }
    await expect(tools().write('hard/x', 'x')).rejects.toEqual(refusal('not a folder'));
    fs.rmSync(inside('hard'));
  });

  test('a folder swapped for a link at any moment leads nowhere', async () => {
    const target = path.join(root, 'target');
    fs.mkdirSync(target, { recursive: true });
    fs.writeFileSync(path.join(target, 'f'), 'secret');
    fs.mkdirSync(inside('real'));
    fs.writeFileSync(inside('real/f'), 'mine');
    let swapping = true;
    // A write in flight may make the folder anew in the gap between two steps: that one is removed, and the step repeated.
    const put = (step: () => void) => {
      for (;;) {
        try {
          step();
          return;
        } catch {
          fs.rmSync(inside('real'), { recursive: true, force: true });
        }
      }
    };
    const swapper = (async () => {
      while (swapping) {
        fs.renameSync(inside('real'), inside('aside'));
        put(() => fs.symlinkSync(target, inside('real')));
        await turn();
        fs.unlinkSync(inside('real'));
        put(() => fs.renameSync(inside('aside'), inside('real')));
        await turn();
      }
    })();
    const seen = new Set<string>();
    for (let i = 0; i < 500; i++) {
      seen.add(
        await tools()
          .read('real/f')
          .catch((error: Error) => error.name),
      );
      await tools()
        .write('real/g', 'x')
        .catch(() => undefined);
    }
    swapping = false;
    await swapper;
    expect([...seen].sort()).toEqual(['MassError', 'mine']);
    expect(fs.readdirSync(target)).toEqual(['f']);
  });

  test('any text is a path inside or a refusal', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('/', '.', 'a', '\0', 'workspace', ' ') }), (given) => {
        try {
          const names = workspaceNames(given);
          expect(path.join(workspace, ...names).startsWith(workspace)).toBe(true);
          expect(names.every((name) => name !== '' && !name.includes('/'))).toBe(true);
        } catch (error) {
          expect(error).toMatchObject({ code: 'invalid_input' });
        }
      }),
    );
  });
});
