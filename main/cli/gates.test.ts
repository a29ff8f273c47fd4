import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { findingsConfig } from '../engine/testing/scripted-findings.ts';
import { writeTaskLibrary } from '../engine/testing/scripted-world.ts';
import { CommandLine, scriptedEngine } from './testing/command-line.ts';

let folder: string;
let line: CommandLine;
/** The command line over an engine with a scripted model, whose best run of task one has a finding. */
const mass = (...args: string[]) => line.mass(...args);
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-cli-gates-'));
  line = new CommandLine(join(folder, 'data'), scriptedEngine);
  const library = writeTaskLibrary(join(folder, 'tasks'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(findingsConfig(library)));
});
afterEach(async () => {
  await line.end();
  await vi.waitFor(() => rmSync(folder, { recursive: true, force: true }), { timeout: 10_000 });
});

it('stops at a gate with 3, goes on after approval, and says no after a rejection', { timeout: 120_000 }, async () => {
  expect(await mass('new', 'x', '--config', join(folder, 'config.json'))).toMatchObject({ code: 0 });
  const stopped = await mass('run', 'x');
  expect(stopped.code).toBe(3);
  expect(stopped.out).toMatch(/^Run gated\. 1 run of "one" would be selected but for 1 undecided finding/);

  const status = (await mass('status', 'x')).out;
  expect(status).toMatch(/select +gated/);
  expect(status).toMatch(/findings 1 open\n\nOpen gates\n {2}cycle 1 on-findings: 1 run of "one"/);

  const list = await mass('findings', 'x');
  expect(list.out).toMatch(/one run 4 +deliverables\.placeholder +doubtful +open +report\.md holds a placeholder/);
  const [finding] = JSON.parse((await mass('findings', 'x', '--json')).out);
  expect(finding).toMatchObject({ taskId: 'one', run: 4, state: 'open' });

  expect(await mass('findings', 'x', '--clear', finding.findingId)).toMatchObject({
    code: 2,
    err: 'Say why the finding is no problem: --note TEXT\n',
  });
  expect((await mass('findings', 'x', '--clear', 'a', '--uphold', 'b')).code).toBe(2);

  expect(await mass('reject', 'x', '--note', 'not yet')).toMatchObject({
    code: 0,
    out: 'Gate on-findings rejected.\n',
  });
  const rejected = await mass('select', 'x');
  expect([rejected.code, rejected.out]).toEqual([
    3,
    'Run gated. A person rejected the gate on-findings ("not yet"); to go on after all: mass approve x on-findings\n',
  ]);

  expect(await mass('approve', 'x')).toMatchObject({ code: 1, err: '"x" has no open gate.\n' });
  expect(await mass('approve', 'x', 'on-findings')).toMatchObject({
    code: 0,
    out: 'Gate on-findings approved. Go on with: mass run x\n',
  });
  expect(await mass('run', 'x', '--until', 'select')).toMatchObject({ code: 0 });
  expect((await mass('gates', 'x')).out).toMatch(/cycle 1 on-findings +approved/);
  const late = await mass('findings', 'x', '--clear', finding.findingId, '--note', 'fine');
  expect(late.out).toContain('The selection of one is made and stays as it is; this decision is recorded.');
});
