import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Deliverable } from '../../common/domain/task.ts';
import { MAX_METRICS_BYTES } from './checks/metrics.ts';
import type { ProtectedFile } from './integrity-check.ts';
import { MAX_FINDINGS_PER_CHECK, runChecks } from './run-checks.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-integrity-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (path: string, content: string | Uint8Array): void => {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), content);
};
const named = (path: string, kind: Deliverable['kind']): Deliverable => ({ path, kind, description: '' });
const check = (deliverables: Deliverable[] = [], inputs: ProtectedFile[] = []) =>
  runChecks({ folder, deliverables, inputs });
const summary = async (deliverables: Deliverable[] = [], inputs: ProtectedFile[] = []) =>
  (await check(deliverables, inputs)).map(({ checkId, severity, message }) => [checkId, severity, message]);
/** What the checks say of a workspace that holds one deliverable with this content. */
const about = (path: string, kind: Deliverable['kind'], content: string | Uint8Array) => {
  rmSync(folder, { recursive: true });
  write(path, content);
  return summary([named(path, kind)]);
};

function png(width: number, height: number): Buffer {
  const head = Buffer.alloc(24);
  Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]).copy(head);
  head.write('IHDR', 12);
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return Buffer.concat([head, deflateSync(Buffer.alloc(100))]);
}

describe('metrics', () => {
  const metrics = (content: string, path = 'metrics.json') => about(path, 'metrics', content);

  it('says nothing of numbers that can be numbers', async () => {
    expect(await metrics('{"sharpe": 0.41, "turnover": 3, "note": "net of costs", "held_out": true}')).toEqual([]);
    expect(await metrics('{"a": "0.5", "b": "7%"}')).toEqual([]);
    expect(await metrics('{"one": 1, "two": 1}')).toEqual([]);
    expect(await metrics('step,loss\n1,0.9\n2,0.7\n3,0.65\n', 'metrics.csv')).toEqual([]);
  });

  it('finds a file whose every value is NaN, as Python writes it', async () => {
    expect(await metrics('{"checks": {"passed": true}, "error": NaN, "ratio": -Infinity, "n": null}')).toEqual([
      [
        'metrics.no-finite',
        'serious',
        'metrics.json holds no finite number: all of its 3 values are NaN or infinite, null or empty.',
      ],
    ]);
    expect(await metrics('[1e999]')).toEqual([
      ['metrics.no-finite', 'serious', 'metrics.json holds no finite number: its only value is NaN or infinite.'],
    ]);
  });

  it('names the place of the first value that is none', async () => {
    expect(await metrics('{"folds": [{"auc": 0.7}, {"auc": NaN}, {"auc": "inf"}], "p": null}')).toEqual([
      [
        'metrics.not-finite',
        'doubtful',
        'metrics.json holds 2 of 4 values that are NaN or infinite, the first (NaN) at folds[].auc.',
      ],
      ['metrics.missing', 'doubtful', 'metrics.json holds 1 of 4 values that are null or empty, the first at p.'],
    ]);
  });

  it('finds numbers that never vary', async () => {
    expect(await metrics('{"accuracy": 1.0, "precision": 1, "recall": 1}')).toEqual([
      ['metrics.constant', 'doubtful', 'metrics.json holds 3 numbers, and all of them are 1.'],
    ]);
    expect(await metrics('epoch,loss,acc\n1,0.5,0\n2,0.5,0\n3,0.5,0\n', 'metrics.csv')).toEqual([
      ['metrics.constant', 'doubtful', 'metrics.csv never varies: loss is always 0.5, acc is always 0.'],
    ]);
    expect(await metrics('{"step":1,"loss":2}\n{"step":2,"loss":2}\n{"step":3,"loss":2}\n', 'metrics.jsonl')).toEqual([
      ['metrics.constant', 'doubtful', 'metrics.jsonl never varies: loss is always 2.'],
    ]);
  });

  it('finds metrics without a number, and files that do not parse', async () => {
    expect(await metrics('{"status": "good"}')).toEqual([
      ['metrics.no-number', 'serious', 'metrics.json holds no number.'],
    ]);
    expect(await metrics('{"a": 1')).toEqual([['metrics.unreadable', 'serious', 'metrics.json is not JSON.']]);
    expect(await metrics('{"a": 1}\n{"a": \n', 'metrics.jsonl')).toEqual([
      ['metrics.unreadable', 'serious', 'metrics.jsonl is not JSON in line 2.'],
    ]);
  });

  it('reads files named like metrics too, more leniently, and never the task’s own', async () => {
    write('out/eval_results.json', '{"auc": NaN}');
    write('out/results.csv', 'day,rolling\n1,\n2,nan\n3,0.5\n4,0.6\n');
    write('out/summary.json', '{"best": {"depth": null}, "auc": 0.7}');
    const scores = 'x,score\n1,nan\n';
    write('data/scores.csv', scores);
    const input = { path: 'data/scores.csv', bytes: scores.length, sha256: sha256(scores) };
    expect(await summary([], [input])).toEqual([
      [
        'metrics.no-finite',
        'serious',
        'out/eval_results.json holds no finite number: its only value is NaN or infinite.',
      ],
    ]);
  });

  it('takes an empty column for missing numbers, and a column of words for none', async () => {
    expect(await metrics('name,sharpe,note\na,,\nb,,\nc,,ok\n', 'metrics.csv')).toEqual([
      ['metrics.no-finite', 'serious', 'metrics.csv holds no finite number: all of its 3 values are null or empty.'],
    ]);
  });
});

describe('deliverables', () => {
  it('names what is missing, empty or no file', async () => {
    mkdirSync(join(folder, 'run.py'));
    write('notes.md', ' \n\t\n');
    symlinkSync('/etc/passwd', join(folder, 'link.md'));
    expect(
      await summary([
        named('report.md', 'report'),
        named('run.py', 'code'),
        named('notes.md', 'report'),
        named('link.md', 'report'),
        named('../outside.md', 'report'),
      ]),
    ).toEqual([
      ['deliverables.missing', 'serious', 'report.md was asked for and is missing.'],
      ['deliverables.not-a-file', 'serious', 'run.py is a link, a folder or cannot be read.'],
      ['deliverables.empty', 'serious', 'notes.md is empty.'],
      ['deliverables.not-a-file', 'serious', 'link.md is a link, a folder or cannot be read.'],
      ['deliverables.missing', 'serious', '../outside.md was asked for and is missing.'],
    ]);
  });

  it('finds placeholders and unfilled slots in a report, not in its code and formulas', async () => {
    const report = (text: string) => about('report.md', 'report', text);
    expect(await report('# R\n\nLorem ipsum dolor.\nTODO: numbers\n')).toEqual([
      ['deliverables.placeholder', 'doubtful', 'report.md holds a placeholder, "Lorem ipsum" in line 3, and 1 more.'],
    ]);
    expect(await report('Sharpe ratio: {sharpe:.2f}\n')).toEqual([
      ['deliverables.placeholder', 'doubtful', 'report.md holds a placeholder, "{sharpe:.2f}" in line 1.'],
    ]);
    expect(await report('Hello {{ name }} and [insert result here]')).toEqual([
      ['deliverables.placeholder', 'doubtful', 'report.md holds a placeholder, "{{ name }}" in line 1, and 1 more.'],
    ]);
    const fine =
      '# R\n```python\nf"{sharpe}" # TODO\n```\nuse `{slot}`, $\\frac{abc}{def}$ and \\mathrm{xyz}; 1 {a}.\n';
    expect(await report(fine)).toEqual([]);
  });

  it('finds JSON and tables that hold nothing, and manifests that do not parse', async () => {
    expect(await about('manifest.json', 'manifest', '{}')).toEqual([
      ['deliverables.empty', 'serious', 'manifest.json holds nothing ({}).'],
    ]);
    expect(await about('manifest.json', 'manifest', '{"a"')).toEqual([
      ['deliverables.unreadable', 'serious', 'manifest.json is not JSON.'],
    ]);
    expect(await about('rows.csv', 'data', 'a,b\n')).toEqual([
      ['deliverables.empty', 'serious', 'rows.csv has a header and no row.'],
    ]);
  });

  it('finds programs that do nothing', async () => {
    const idle =
      'import sys\n\n# TODO\ndef main():\n    """Does it all."""\n    pass  # later\n\nif __name__ == "__main__":\n    main()\n';
    expect(await about('run.py', 'code', idle)).toEqual([
      ['deliverables.does-nothing', 'serious', 'run.py holds no statement that does anything.'],
    ]);
    expect(await about('run.py', 'code', `${idle}print(1)  # TODO\n`)).toEqual([]);
    expect(await about('run.sh', 'code', '#!/bin/sh\n# later\n')).toHaveLength(1);
  });

  it('finds plots that are none', async () => {
    expect(await about('a.png', 'plot', 'no image')).toEqual([
      ['deliverables.not-an-image', 'serious', 'a.png is not a PNG image.'],
    ]);
    expect(await about('a.png', 'plot', png(1, 1))).toEqual([
      ['deliverables.tiny-image', 'serious', 'a.png is an image of 1 x 1 pixels, which shows nothing.'],
    ]);
    expect(await about('a.png', 'plot', png(640, 480))).toEqual([]);
  });
});

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('inputs', () => {
  const placed = (path: string, text: string): ProtectedFile => {
    write(path, text);
    return { path, bytes: text.length, sha256: sha256(text) };
  };

  it('finds files of the task that were changed, deleted or replaced, and is content with the others', async () => {
    const same = placed('data/a.csv', 'x\n1\n');
    const edited = placed('data/b.csv', 'x\n1\n');
    const grown = placed('data/c.csv', 'x\n1\n');
    const gone = placed('data/d.csv', 'x\n1\n');
    const linked = placed('data/e.csv', 'x\n1\n');
    write('data/b.csv', 'x\n2\n');
    write('data/c.csv', 'x\n1\n2\n');
    rmSync(join(folder, 'data/d.csv'));
    rmSync(join(folder, 'data/e.csv'));
    symlinkSync('a.csv', join(folder, 'data/e.csv'));
    expect(await summary([], [same, edited, grown, gone, linked])).toEqual([
      [
        'inputs.changed',
        'serious',
        `The task's file data/b.csv was changed (same size, sha256 ${sha256('x\n2\n').slice(0, 12)} instead of ${edited.sha256.slice(0, 12)}).`,
      ],
      ['inputs.changed', 'serious', "The task's file data/c.csv was changed (6 bytes instead of 4)."],
      ['inputs.deleted', 'serious', "The task's file data/d.csv was deleted or moved."],
      ['inputs.replaced', 'serious', "The task's file data/e.csv was replaced by something that is no readable file."],
    ]);
  });

  it('does not follow a folder that became a link', async () => {
    const input = placed('data/a.csv', 'x\n');
    const elsewhere = mkdtempSync(join(tmpdir(), 'mass-elsewhere-'));
    writeFileSync(join(elsewhere, 'a.csv'), 'x\n');
    rmSync(join(folder, 'data'), { recursive: true });
    symlinkSync(elsewhere, join(folder, 'data'));
    expect((await check([], [input])).map(({ checkId }) => checkId)).toEqual(['inputs.replaced']);
    rmSync(elsewhere, { recursive: true });
  });
});

describe('hostile workspaces', () => {
  it('are bounded in size and nesting', async () => {
    write('metrics.json', '['.repeat(MAX_METRICS_BYTES / 2));
    write('results.json', `[${'1,'.repeat(MAX_METRICS_BYTES)}1]`);
    expect(await summary([named('metrics.json', 'metrics')])).toEqual([
      ['metrics.unreadable', 'serious', 'metrics.json is nested too deeply.'],
      ['metrics.unreadable', 'doubtful', 'results.json is too large to be checked.'],
    ]);
  });

  it('cannot buy time with quotes, spaces, commas or short rows under a wide header', async () => {
    write('report.md', `${'`{abc'.repeat(50_000)}${' '.repeat(200_000)}`);
    write('run.py', `x${' '.repeat(400_000)}y\n`);
    write('metrics.json', `"${'\\"'.repeat(500_000)}`);
    write('scores.csv', `${Array.from({ length: 5000 }, (_, i) => `c${i}`).join(',')}\n${'1\n'.repeat(900_000)}`);
    write('results.csv', `"${'a""'.repeat(600_000)}`);
    const found = await check([
      named('report.md', 'report'),
      named('run.py', 'code'),
      named('metrics.json', 'metrics'),
    ]);
    expect(found.map(({ checkId, path }) => [checkId, path])).toEqual([
      ['metrics.unreadable', 'metrics.json'],
      ['metrics.constant', 'scores.csv'],
    ]);
  });

  it('show their file names and keys escaped and cut', async () => {
    write('result\u001b[2J.json', `{"k\u202e${'x'.repeat(500)}": NaN, "b": 1}`);
    const [found] = await check();
    expect(found?.path).toBe('result\\x1b[2J.json');
    expect(found?.message).toContain(`at k\\u{202e}${'x'.repeat(38)}…`);
    expect(found?.message).not.toContain('\u001b');
  });

  it('cannot flood the list', async () => {
    const inputs = Array.from({ length: 50 }, (_, i) => ({ path: `data/${i}.csv`, bytes: 1, sha256: 'a'.repeat(64) }));
    const found = await check([], inputs);
    expect(found).toHaveLength(MAX_FINDINGS_PER_CHECK + 1);
    expect(found.at(-1)?.message).toBe('30 more findings of the check "inputs" are not listed.');
  });

  it('are a finding when they are gone', async () => {
    rmSync(folder, { recursive: true });
    expect((await check()).map(({ checkId }) => checkId)).toEqual(['workspace.gone']);
  });
});
