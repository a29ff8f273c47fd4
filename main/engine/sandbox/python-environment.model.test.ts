import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { projectRoot } from '../../node/project-root.ts';
import { createSandbox } from './detect.ts';
import { ensurePythonEnvironment, type PythonEnvironment } from './python-environment.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'mass-python-'));
const root = path.join(projectRoot, '.mass', 'python');
let python: PythonEnvironment;
beforeAll(async () => {
  python = await ensurePythonEnvironment({ root });
}, 900_000);
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

const limits = { memoryMiB: 2048, processes: 64, fileMiB: 64, diskMiB: 128, cpuSeconds: 120 };

async function runPython(name: string, command: string) {
  const sandbox = await createSandbox('bubblewrap', silentLogger);
  const workspace = path.join(folder, name);
  await sandbox.createWorkspace(workspace);
  const { mounts: readOnlyMounts, env } = python;
  const result = await sandbox.run({
    command,
    workspace,
    limits,
    wallSeconds: 120,
    outputBytes: 20_000,
    readOnlyMounts,
    env,
  });
  return { result, workspace };
}

test('packages import in the sandbox and a plot is written', async () => {
  const script = `
import numpy, pandas, scipy, sklearn, matplotlib.pyplot as plt, sys
plt.plot(pandas.Series(numpy.arange(10)).cumsum())
plt.savefig("plot.png")
print(sys.prefix, numpy.linalg.norm(numpy.array([3.0, 4.0])))`;
  const { result, workspace } = await runPython('plot', `python3 -c '${script}'`);
  expect(result).toMatchObject({ exitCode: 0, stdout: '/opt/mass-python 5.0\n' });
  expect(fs.readFileSync(path.join(workspace, 'plot.png')).subarray(1, 4).toString()).toBe('PNG');
});

test('the environment cannot be changed from inside', async () => {
  const { result } = await runPython(
    'locked',
    'readlink -f "$(command -v python)" >/dev/null; touch /opt/mass-python/x; python -m pip install --no-index x; touch "$(python -c "import numpy; print(numpy.__file__)")"',
  );
  expect(result.exitCode).not.toBe(0);
  expect(result.stderr).toContain("cannot touch '/opt/mass-python/x': Read-only file system");
  expect(fs.existsSync(path.join(python.folder, 'x'))).toBe(false);
});

test('a second call finds the environment and does no work', async () => {
  const said: string[] = [];
  const again = await ensurePythonEnvironment({
    root,
    searchPath: '/nonexistent',
    onProgress: (line) => said.push(line),
  });
  expect(again.folder).toBe(python.folder);
  expect(said).toEqual([]);
  expect(again.description).toMatch(/^Python 3\.1[1-3]\.\d+ with numpy \d.*matplotlib \d/);
});

test('no Python is a prerequisite with the way out', async () => {
  const attempt = ensurePythonEnvironment({ root: path.join(folder, 'none'), searchPath: '/nonexistent' });
  await expect(attempt).rejects.toMatchObject({
    code: 'prerequisite',
    message: expect.stringContaining('python3-venv'),
  });
});
