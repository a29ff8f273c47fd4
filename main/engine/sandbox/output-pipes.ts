import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { MassError } from '../../common/base/errors.ts';

/** Two pipes for a child's stdout and stderr. Whoever opens them calls `closeWriters` after spawn. */
export interface OutputPipes {
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly writers: readonly [number, number];
  readonly closeWriters: () => void;
}

/**
 * Real pipes. Node's own 'pipe' is a socket pair, and a socket cannot be opened by name: `tee /dev/stderr` or
 * `> /dev/stdout`, common in shell text, would fail with ENXIO. Named only for the moment it takes to open both ends;
 * mode 0666 as opening /dev/stdout asks for permission on the pipe, which another user made.
 */
export async function openOutputPipes(): Promise<OutputPipes> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'mass-pipes-'));
  const names = ['out', 'err'].map((name) => path.join(folder, name));
  const opened: number[] = [];
  try {
    await promisify(execFile)('mkfifo', ['-m', '666', ...names]);
    const { O_RDONLY, O_WRONLY, O_NONBLOCK } = fs.constants;
    for (const name of names) {
      opened.push(fs.openSync(name, O_RDONLY | O_NONBLOCK));
      opened.push(fs.openSync(name, O_WRONLY));
    }
    const [outRead, outWrite, errRead, errWrite] = opened as [number, number, number, number];
    let open = true;
    return {
      stdout: new net.Socket({ fd: outRead, readable: true, writable: false }),
      stderr: new net.Socket({ fd: errRead, readable: true, writable: false }),
      writers: [outWrite, errWrite],
      closeWriters: () => {
        if (!open) return;
        open = false;
        fs.closeSync(outWrite);
        fs.closeSync(errWrite);
      },
    };
  } catch (error) {
    for (const fd of opened) fs.closeSync(fd);
    throw new MassError('infrastructure', 'Pipes for a command cannot be made; check the temporary folder.', {
      cause: error,
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
