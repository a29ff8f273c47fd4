import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { silentLogger } from '../../../common/base/logger.ts';
import { createSandbox, detectSandbox } from '../../sandbox/detect.ts';
import type { Sandbox } from '../../sandbox/sandbox.ts';
import { call, play, say, use } from './testing/episode-fixture.ts';

const detected = await detectSandbox();

let folder: string;
let sandbox: Sandbox;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mass-team-'));
  if (detected.available) sandbox = await createSandbox('bubblewrap', silentLogger);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it.skipIf(!detected.available)('a worker writes a program, mends it and runs it in the sandbox', async () => {
  const workspace = join(folder, 'attempt');
  await sandbox.createWorkspace(workspace);
  const steps = [
    call('write_file', { path: 'code/add.sh', content: 'echo $((20 + 21)) > sum.txt\npwd\n' }),
    call('edit_file', { path: '/workspace/code/add.sh', find: '21', replace: '22' }),
    call('run_command', { command: 'bash code/add.sh && cat sum.txt && ls /work /root 2>/dev/null | wc -l' }),
    call('read_file', { path: '../attempt/sum.txt' }),
    call('list_files', {}),
  ];
  const { stage, result } = play({
    workspace,
    sandbox,
    script: ({ thread, messages }, turn) => {
      if (thread.endsWith(':t0'))
        return turn === 0 ? use(call('delegate', { role: 'Coder', assignment: 'Add.' })) : say(`Done.`);
      const next = steps[turn];
      return next ? use(next) : say(messages.at(-1)?.content ?? '');
    },
  });
  expect(await result).toMatchObject({ outcome: 'completed', toolCalls: 6 });
  const [written, edited, ran, escaped, listed] = stage.toolRuns;
  expect(written).toMatchObject({ failed: false });
  expect(edited).toMatchObject({ failed: false });
  expect(ran).toMatchObject({ exitCode: 0, result: 'exit code 0\n/workspace\n42\n0' });
  expect(escaped).toMatchObject({ failed: true });
  expect(listed?.result).toBe('code/\nsum.txt (3 bytes)');
  expect(await readFile(join(workspace, 'sum.txt'), 'utf8')).toBe('42\n');
  expect(JSON.stringify(stage.requests)).not.toContain(folder);
});
