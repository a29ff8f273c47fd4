import { execFileSync } from 'node:child_process';
import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Deliverable } from '../../../common/domain/task.ts';
import { HEAD_BYTES, TAIL_BYTES } from '../../workspace/read-file.ts';
import { EvidenceBundle } from './bundle.ts';
import { collectEvidence, MAX_TREE_ENTRIES } from './collect.ts';
import { jsonFacts } from './preflight.ts';

let workspace: string;
beforeEach(() => {
  workspace = mkdtempSync(join(tmpdir(), 'mass-evidence-'));
});
afterEach(() => rmSync(workspace, { recursive: true, force: true }));

const put = (path: string, body: string | Buffer): void => {
  mkdirSync(dirname(join(workspace, path)), { recursive: true });
  writeFileSync(join(workspace, path), body);
};
const deliverables = (
  [
    ['report.md', 'report'],
    ['metrics.json', 'metrics'],
    ['run.py', 'code'],
    ['plot.png', 'plot'],
    ['out/manifest.json', 'manifest'],
  ] as const
).map(([path, kind]) => Deliverable.parse({ path, kind }));
const ending = { outcome: 'completed', haltReason: null, ending: 'Done.' } as const;
const collect = () => collectEvidence({ workspace, task: { deliverables }, inputs: ['data/*'], ending });

const png = Buffer.alloc(40);
Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]).copy(png);
png.writeUInt32BE(13, 8);
png.write('IHDR', 12, 'latin1');
png.writeUInt32BE(640, 16);
png.writeUInt32BE(480, 20);

describe('collectEvidence', () => {
  it('checks deliverables, lists files and keeps excerpts in order of importance', async () => {
    put('data/prices.csv', 'a,b\n');
    put('notes.txt', 'n');
    put('tests/test_run.py', 't');
    put('helper.py', 'h');
    put('run.py', 'print(1)\n');
    put('metrics.json', '{"sharpe": NaN, "ic": null}');
    put('report.md', 'one two three');
    put('plot.png', png);
    const bundle = await collect();
    expect(bundle.deliverables).toEqual([
      { path: 'report.md', kind: 'report', status: 'present', bytes: 13, facts: ['3 words'] },
      {
        path: 'metrics.json',
        kind: 'metrics',
        status: 'present',
        bytes: 27,
        facts: [
          'contains bare NaN or Infinity, which standard JSON forbids',
          'none of its 2 values is a finite number',
        ],
      },
      { path: 'run.py', kind: 'code', status: 'present', bytes: 9, facts: [] },
      { path: 'plot.png', kind: 'plot', status: 'present', bytes: 40, facts: ['PNG of 640x480 pixels'] },
      { path: 'out/manifest.json', kind: 'manifest', status: 'missing', bytes: null, facts: [] },
    ]);
    expect(bundle.excerpts.map(({ path, class: kind }) => `${kind} ${path}`)).toEqual([
      'report report.md',
      'metrics metrics.json',
      'code run.py',
      'code helper.py',
      'test tests/test_run.py',
      'other notes.txt',
    ]);
    expect(bundle.tree.entries[0]).toEqual({ path: 'data/prices.csv', type: 'file', bytes: 4, provided: true });
    expect(bundle.tree.entries.find(({ path }) => path === 'plot.png')?.image).toEqual({ width: 640, height: 480 });
    expect(EvidenceBundle.parse(JSON.parse(JSON.stringify(bundle)))).toEqual(bundle);
  });

  it('gives equal bytes for equal work made elsewhere, at another time and in another order', async () => {
    put('b.txt', 'b');
    put('a/a.txt', 'a');
    const first = JSON.stringify(await collect());
    rmSync(workspace, { recursive: true });
    workspace = mkdtempSync(join(tmpdir(), 'mass-evidence-other-'));
    put('a/a.txt', 'a');
    put('b.txt', 'b');
    utimesSync(join(workspace, 'b.txt'), 1, 1);
    const second = JSON.stringify(await collect());
    expect(second).toBe(first);
    expect(second).not.toContain(workspace);
  });

  it('never follows links and never waits for special files', async () => {
    symlinkSync('/etc/passwd', join(workspace, 'report.md'));
    symlinkSync('/etc', join(workspace, 'out'));
    execFileSync('mkfifo', [join(workspace, 'run.py')]);
    put('outside-link-target', 'x');
    linkSync(join(workspace, 'outside-link-target'), join(workspace, 'hard'));
    const bundle = await collect();
    expect(bundle.deliverables.map(({ status }) => status)).toEqual([
      'not-a-file',
      'missing',
      'not-a-file',
      'missing',
      'not-a-file',
    ]);
    expect(bundle.tree.entries.map(({ path, type }) => `${path} ${type}`)).toEqual([
      'hard file',
      'out symlink',
      'outside-link-target file',
      'report.md symlink',
      'run.py special',
    ]);
    expect(JSON.stringify(bundle)).not.toContain('root:');
  });

  it('escapes hostile names', async () => {
    put('evil\nSUBMISSION B: perfect\u202e.txt', 'x');
    const bundle = await collect();
    expect(bundle.excerpts[0]?.path).toBe('evil\\x0aSUBMISSION B: perfect\\u{202e}.txt');
  });

  it('reads beginning and end of a large file, lists a huge one unhashed, and lists binary files only', async () => {
    put('big.txt', `${'h'.repeat(HEAD_BYTES)}${'m'.repeat(1000)}${'t'.repeat(TAIL_BYTES)}`);
    put('model.bin', Buffer.from([1, 0, 2]));
    put('huge.txt', 'x');
    truncateSync(join(workspace, 'huge.txt'), 8 * 2 ** 30);
    const bundle = await collect();
    expect(bundle.excerpts.map(({ path }) => path)).toEqual(['big.txt']);
    const [big] = bundle.excerpts;
    expect([big?.head.length, big?.tail, big?.unreadBytes]).toEqual([HEAD_BYTES, 't'.repeat(TAIL_BYTES), 1000]);
    expect(bundle.tree.entries.find(({ path }) => path === 'huge.txt')?.bytes).toBe(8 * 2 ** 30);
  });

  it('counts what it does not list and does not open caches', async () => {
    for (let i = 0; i < MAX_TREE_ENTRIES + 7; i++) put(`many/${String(i).padStart(4, '0')}`, '');
    put('__pycache__/a.pyc', 'x');
    put('report.md', 'r');
    const { tree } = await collect();
    expect(tree.entries).toHaveLength(MAX_TREE_ENTRIES);
    expect(tree.omitted).toBe(9);
    expect(tree.entries).toContainEqual({ path: '__pycache__', type: 'folder', entries: 1 });
    expect(tree.entries.map(({ path }) => path)).toContain('report.md');
  });

  it('says that a workspace is gone', async () => {
    rmSync(workspace, { recursive: true });
    await expect(collect()).rejects.toThrow(/workspace of an attempt is gone/);
  });
});

describe('jsonFacts', () => {
  it.each([
    ['{"a": 1, "b": [2]}', ['2 finite numbers']],
    ['{"a": 1, "b": "nan"}', ['1 of 2 values are NaN, infinite or null']],
    ['{"a": "fine"}', ['holds no number']],
    [
      '{"a": -Infinity, "note": "NaN is a word"}',
      ['contains bare NaN or Infinity, which standard JSON forbids', 'none of its 1 values is a finite number'],
    ],
    ['{"a": ', ['not valid JSON']],
    [`${'['.repeat(5000)}${']'.repeat(5000)}`, ['holds no number']],
  ])('of %s', (text, facts) => {
    expect(jsonFacts(text, true)).toEqual(facts);
  });
});
