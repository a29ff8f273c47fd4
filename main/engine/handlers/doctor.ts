import { statfs } from 'node:fs/promises';
import { availableParallelism, freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { toErrorData } from '../../common/base/errors.ts';
import type { DoctorRow } from '../../common/protocol/engine.ts';
import type { HandlerContext } from '../../node/engine-handlers.ts';
import { detectSandbox } from '../sandbox/detect.ts';
import { ensurePythonEnvironment } from '../sandbox/python-environment.ts';
import type { HandlerParts } from './parts.ts';

const GB = 1e9;
const row = (what: string, state: DoctorRow['state'], detail: string, remedy: string | null = null): DoctorRow => ({
  what,
  state,
  detail,
  remedy,
});

/** What works on this machine, what is missing, and how to mend it. `repair` builds what the program itself can build. */
export async function runDoctor(
  { store }: HandlerParts,
  { repair, context }: { repair: boolean; context: HandlerContext },
): Promise<DoctorRow[]> {
  return [
    await sandboxRow(),
    await pythonRow(store.folder, { repair, context }),
    memoryRow(),
    await diskRow(store.folder),
    modelsRow(store),
  ];
}

async function sandboxRow(): Promise<DoctorRow> {
  const found = await detectSandbox();
  return found.available
    ? row('sandbox', 'ok', `bubblewrap ${found.version}`)
    : row('sandbox', 'missing', found.reason, found.remedy);
}

async function pythonRow(
  folder: string,
  { repair, context }: { repair: boolean; context: HandlerContext },
): Promise<DoctorRow> {
  const what = 'Python environment of commands';
  try {
    const root = join(folder, 'python');
    const onProgress = (label: string) =>
      context.progress({ label, done: 0, total: null, unit: 'steps', etaSeconds: null });
    const python = await ensurePythonEnvironment({ root, build: repair, signal: context.signal, onProgress });
    return row(what, 'ok', python.description);
  } catch (error) {
    const { message, cause } = toErrorData(error);
    return row(what, 'warning', cause ? `${message} (${cause})` : message, 'mass doctor --repair');
  }
}

function memoryRow(): DoctorRow {
  const free = freemem() / GB;
  return row(
    'memory',
    free < 2 ? 'warning' : 'ok',
    `${free.toFixed(1)} GB free of ${(totalmem() / GB).toFixed(1)} GB, ${availableParallelism()} cores`,
    free < 2 ? 'close other programs' : null,
  );
}

async function diskRow(folder: string): Promise<DoctorRow> {
  const { bavail, bsize } = await statfs(folder);
  const free = (bavail * bsize) / GB;
  return row(
    'disk',
    free < 10 ? 'warning' : 'ok',
    `${free.toFixed(1)} GB free at ${folder}`,
    free < 10 ? 'free space, or choose another folder with --data' : null,
  );
}

function modelsRow(store: HandlerParts['store']): DoctorRow {
  const models = store.models.all();
  return models.length > 0
    ? row('models', 'ok', models.map((model) => model.modelId).join(', '))
    : row(
        'models',
        'warning',
        'none on this machine yet',
        'mass models list, then mass models fetch ID or mass models add PATH',
      );
}
