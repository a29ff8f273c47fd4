import { randomBytes } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { buildGguf, smallModel } from '../engine/models/gguf-fixture.ts';
import { findingsConfig } from '../engine/testing/scripted-findings.ts';
import { writeTaskLibrary } from '../engine/testing/scripted-world.ts';
import { CommandLine, runProgram, scriptedEngine } from './testing/command-line.ts';

/** What a person can get wrong, or lack, through the command line: one sentence, the right exit code, nothing lost. */
let folder: string;
let library: string;
let line: CommandLine;
/** A folder, and an engine on it, for each test of a group or for all of them. */
function useFolder(before: typeof beforeEach | typeof beforeAll, after: typeof afterEach | typeof afterAll): void {
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'mass-bad-input-'));
    library = writeTaskLibrary(join(folder, 'tasks'));
    line = new CommandLine(join(folder, 'data'), scriptedEngine);
  });
  after(async () => {
    await line.end();
    await vi.waitFor(() => rmSync(folder, { recursive: true, force: true }), { timeout: 10_000 });
  });
}

function writeConfig(change: object = {}): string {
  const file = join(folder, 'config.json');
  writeFileSync(file, JSON.stringify({ ...findingsConfig(library), ...change }));
  return file;
}

/** The programs of PATH but those whose names begin so, as one folder of links. */
function pathWithout(prefix: string): string {
  const bin = join(folder, `without-${prefix}`);
  mkdirSync(bin);
  const seen = new Set<string>();
  for (const source of (process.env['PATH'] ?? '').split(delimiter).filter((path) => existsSync(path))) {
    for (const name of readdirSync(source)) {
      if (name.startsWith(prefix) || seen.has(name)) continue;
      seen.add(name);
      symlinkSync(join(source, name), join(bin, name));
    }
  }
  return bin;
}

describe('a model file', () => {
  useFolder(beforeAll, afterAll);
  const files: [string, () => Buffer | null, RegExp][] = [
    ['that is missing', () => null, /^The model file .*model\.gguf cannot be opened; check the path/],
    ['of random bytes', () => randomBytes(5000), /is not a GGUF file; name a \.gguf file or convert the model\.\n$/],
    [
      'with another magic',
      () => Buffer.concat([Buffer.from('GGML'), buildGguf(smallModel).subarray(4)]),
      /is not a GGUF file/,
    ],
    [
      'cut in its header',
      () => buildGguf(smallModel).subarray(0, 200),
      /ends inside its header, after 200 bytes; fetch or/,
    ],
    [
      'cut in its weights',
      () => buildGguf(smallModel).subarray(0, -40),
      /has \d+ of at least \d+ bytes; fetch or copy/,
    ],
  ];
  it.each(files)('%s is refused and leaves nothing behind', async (_, bytes, sentence) => {
    const content = bytes();
    const path = join(folder, 'model.gguf');
    rmSync(path, { force: true });
    if (content !== null) writeFileSync(path, content);
    expect(await line.mass('models', 'add', path)).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringMatching(sentence),
    });
    expect((await line.mass('models', 'list', '--json')).out).not.toContain(path);
  });
});

describe('a configuration', () => {
  useFolder(beforeAll, afterAll);
  const wrong: [string, object, RegExp][] = [
    ['with an unknown key', { serch: {} }, /\(top level: Unrecognized key: "serch"\); correct/],
    ['with an unknown inner key', { search: { update: 1 } }, /\(search: Unrecognized key: "update"\)/],
    ['whose splits overlap', { train: ['one'], test: ['one'] }, /Tasks one are in both train and test; a task belongs/],
    ['that names a task twice', { train: ['one', 'one'] }, /\(tasks\.train: one is named twice; name a task once\)/],
    ['of a task that is not there', { train: ['four'] }, /has no task "four"; it has: one, two, three\./],
    ['without a task', { train: [] }, /tasks\.train: /],
    ['that keeps more runs than it makes', { select: { train: 9 } }, /select keeps 10 runs but collect makes 4; raise/],
    [
      'whose calls leave no room for a prompt',
      { model: { id: 'scripted', contextSize: 4096 } },
      /^search\.callTokens \(4000\) and executor\.contextSafety \(100\) leave nothing of model\.contextSize \(4096\)/,
    ],
    [
      'of an unknown model',
      { model: { id: 'nope' } },
      /"nope" is not on this machine; fetch it with: mass models fetch/,
    ],
  ];
  it.each(wrong)('%s is refused in one line, and creates nothing', async (_, change, sentence) => {
    const { train, test, ...rest } = change as { train?: string[]; test?: string[] };
    const tasks = { library, train: train ?? ['one', 'two'], test: test ?? ['three'] };
    const { code, out, err } = await line.mass('new', 'x', '--config', writeConfig({ ...rest, tasks }));
    expect([code, out]).toEqual([1, '']);
    expect(err).toMatch(sentence);
    expect(err.trimEnd().split('\n')).toHaveLength(1);
    expect((await line.mass('status', '--json')).out).toBe('[]\n');
  });

  it('that is no JSON, or is not there, is refused', async () => {
    writeFileSync(join(folder, 'half.json'), '{"model":');
    for (const name of ['half.json', 'absent.json']) {
      const refused = await line.mass('new', 'x', '--config', join(folder, name));
      expect(refused.code).toBe(1);
      expect(refused.err).toMatch(/json cannot be read as JSON; name a configuration file\.\nCause: /);
    }
  });

  it('under a name that a shell or a file cannot take is refused', async () => {
    for (const name of ['../x', 'a/b', ' '])
      expect(await line.mass('new', name, '--config', writeConfig())).toMatchObject({
        code: 1,
        err: expect.stringContaining('name: use letters, digits'),
      });
  });
});

describe('a task library', () => {
  useFolder(beforeAll, afterAll);
  const libraries: [string, (at: string) => void, RegExp][] = [
    ['without a task', (at) => mkdirSync(at), /holds no task; add one sub-folder per task with task\.json/],
    ['with an empty task', (at) => mkdirSync(join(at, 't'), { recursive: true }), /has no task\.json; add the file or/],
    [
      'with a broken task.json',
      (at) => {
        cpSync(library, at, { recursive: true });
        writeFileSync(join(at, 'two/task.json'), '{"id": "two",');
      },
      /^task\.json of .*two is not JSON at line 1, column \d+; correct it there/,
    ],
    ['that is not there', () => undefined, /cannot be read; name a folder with one sub-folder per task/],
  ];
  it.each(libraries)('%s is refused, naming what is wrong with it', async (_, make, sentence) => {
    const other = join(folder, 'other');
    rmSync(other, { recursive: true, force: true });
    make(other);
    const tasks = { library: other, train: ['one'] };
    expect(await line.mass('new', 'x', '--config', writeConfig({ tasks }))).toMatchObject({
      code: 1,
      err: expect.stringMatching(sentence),
    });
  });
});

describe('an engine', () => {
  useFolder(beforeEach, afterEach);
  const startByHand = (...args: string[]) =>
    runProgram(process.execPath, ['--disable-warning=ExperimentalWarning', scriptedEngine.MASS_ENGINE_ENTRY, ...args], {
      ...process.env,
    });

  it('is refused on a folder that has one, naming the way out', async () => {
    await line.mass('status');
    const { code, err } = await startByHand('--data', line.data);
    expect(code).toBe(1);
    expect(err).toMatch(/An engine \(pid \d+\) already uses .*; attach to it, or end it with \\"mass stop --engine/);
    expect(await line.mass('status', '--json')).toMatchObject({ code: 0, out: '[]\n' });
  });

  it('is refused on a port that is taken', async () => {
    const other = createServer();
    const port = await new Promise<number>((resolve) =>
      other.listen(0, '127.0.0.1', () => resolve((other.address() as AddressInfo).port)),
    );
    try {
      const { code, err } = await startByHand('--data', line.data, '--port', String(port));
      expect(code).toBe(1);
      expect(err).toContain(`Port ${port} cannot be used; choose another.`);
    } finally {
      other.close();
    }
  });

  it('does not start where its folder cannot be made', async () => {
    writeFileSync(join(folder, 'a-file'), '');
    const unwritable = process.platform === 'linux' ? ['/proc/mass-lab/data'] : [];
    for (const data of [join(folder, 'a-file'), join(folder, 'a-file/data'), ...unwritable])
      expect(await new CommandLine(data).mass('status')).toMatchObject({
        code: 1,
        err: expect.stringContaining(`${data} cannot be written; choose another folder with --data.`),
      });
  });
});

describe('a machine', () => {
  useFolder(beforeEach, afterEach);
  it('without bubblewrap refuses to run commands, unless the configuration says host, which is recorded', async () => {
    line = new CommandLine(line.data, { ...scriptedEngine, PATH: pathWithout('bwrap') });
    await line.mass('new', 'safe', '--config', writeConfig());
    expect(await line.mass('run', 'safe')).toMatchObject({
      code: 1,
      out: expect.stringMatching(/^Run failed\. No sandbox: bubblewrap is not installed; .*bubblewrap/),
    });
    await line.mass(
      'new',
      'open',
      '--config',
      writeConfig({ sandbox: { mode: 'host' }, gates: { onFindings: false } }),
    );
    const ran = await line.mass('run', 'open', '--until', 'collect');
    expect(ran).toMatchObject({
      code: 0,
      err: expect.stringMatching(/Warning: Model-written commands run .*unprotected/),
    });
    const status = JSON.parse((await line.mass('status', 'open', '--json')).out);
    expect(status).toMatchObject({
      sandbox: 'host',
      notices: expect.arrayContaining([expect.stringMatching(/^SANDBOX OFF/)]),
    });
    const events = (await line.mass('log', 'open', '--all', '--json')).out.trimEnd().split('\n');
    const attempts = events.map((event) => JSON.parse(event).event).filter(({ type }) => type === 'attempt.started');
    expect(new Set(attempts.map(({ sandboxMode }) => sandboxMode))).toEqual(new Set(['host']));
  });
});

describe('mass doctor', () => {
  useFolder(beforeEach, afterEach);

  interface Row {
    readonly what: string;
    readonly state: string;
    readonly detail: string;
    readonly remedy: string | null;
  }
  const rows = async (): Promise<Row[]> => JSON.parse((await line.mass('doctor', '--json')).out);

  it('has a row for everything a run needs, and a remedy wherever one is not right', async () => {
    const found = await rows();
    const what = found.map((row) => row.what);
    expect(what).toEqual(expect.arrayContaining(['sandbox', 'GPU', 'memory', 'disk', 'models']));
    expect(found.filter((row) => row.state === 'ok' && row.remedy !== null)).toEqual([]);
    expect(found.filter((row) => row.state !== 'ok' && !row.remedy)).toEqual([]);
    // What llama.cpp itself says, not a guess from device files.
    expect(found.find((row) => row.what === 'GPU')?.detail).toMatch(/CPU \(\d+ threads|cuda|vulkan|metal/);
    expect(found.find((row) => row.what === 'disk')?.detail).toMatch(/ GB free at .*data$/);
  });

  it('says what to install without Python, which no repair can make', async () => {
    line = new CommandLine(line.data, {
      ...scriptedEngine,
      PATH: pathWithout('python'),
      MASS_TRAINER_PYTHON: undefined,
    });
    const { code, out } = await line.mass('doctor');
    expect(code).toBe(1);
    expect(out).toMatch(/Python environment of commands: install Python 3\.11 to 3\.13 with its venv module/);
  });
});

describe('a command', () => {
  useFolder(beforeEach, afterEach);
  it('out of order names what comes first', async () => {
    await line.mass('new', 'x', '--config', writeConfig());
    for (const [stage, sentence] of [
      ['collect', /The search of "one" is not finished; run: mass search/],
      ['rank', /0 of 4 runs of "one" are collected; finish that first: mass collect/],
      ['select', /The runs of "one" are not ranked yet; run: mass rank/],
    ] as const) {
      const { code, out } = await line.mass(stage, 'x');
      expect([stage, code]).toEqual([stage, 2]);
      expect(out).toMatch(sentence);
    }
  });

  it('for an experiment that is not there says which there are', async () => {
    await line.mass('new', 'x', '--config', writeConfig());
    for (const args of [
      ['run', 'y'],
      ['status', 'y'],
      ['log', 'y'],
      ['stop', 'y', '--now'],
    ])
      expect(await line.mass(...args)).toMatchObject({ code: 1, err: 'There is no experiment "y"; there are: x.\n' });
    expect(await line.mass('stop', 'x', '--now')).toMatchObject({
      code: 0,
      out: 'Nothing was running, so nothing to stop.\n',
    });
    expect(await line.mass('run', 'x', '--tasks', 'one,four')).toMatchObject({
      code: 2,
      err: '"x" has no task four; it has: one, two, three.\n',
    });
  });
});
