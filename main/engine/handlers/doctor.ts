import { existsSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { availableParallelism, freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { toErrorData } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { DoctorRow } from '../../common/protocol/engine.ts';
import type { HandlerContext } from '../../node/engine-handlers.ts';
import { probeDevice } from '../endpoints/ask-inference.ts';
import { findPython, type VenvOptions } from '../process/python-venv.ts';
import { detectSandbox } from '../sandbox/detect.ts';
import { ensureWorkingPythonEnvironment } from '../sandbox/python-environment.ts';
import { ensureWorkingTrainerEnvironment, trainerRemedy } from '../trainer/trainer-environment.ts';
import type { HandlerParts } from './parts.ts';

const GB = 1e9;
const repairCommand = 'mass doctor --repair';
const row = (what: string, state: DoctorRow['state'], detail: string, remedy: string | null = null): DoctorRow => ({
  what,
  state,
  detail,
  remedy,
});

/** What works on this machine, what is missing, and how to mend it. `repair` builds what the program itself can build. */
export async function runDoctor(
  { store, logger }: HandlerParts,
  { repair, context }: { repair: boolean; context: HandlerContext },
): Promise<DoctorRow[]> {
  const pythonRows: DoctorRow[] = [];
  for (const check of pythons) pythonRows.push(await pythonRow(store.folder, check, { repair, context }));
  return [
    await sandboxRow(),
    ...pythonRows,
    await deviceRow(logger),
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

interface PythonCheck {
  readonly what: string;
  readonly ensure: (options: VenvOptions) => Promise<{ readonly description: string }>;
  readonly remedy: () => string;
}
const pythons: readonly PythonCheck[] = [
  {
    what: 'Python environment of commands',
    ensure: ensureWorkingPythonEnvironment,
    remedy: () => repairCommand,
  },
  { what: 'Python environment of the trainer', ensure: ensureWorkingTrainerEnvironment, remedy: trainerRemedy },
];

/** Repairing makes an environment that is missing, and one that does not work anew. */
async function pythonRow(
  folder: string,
  { what, ensure, remedy }: PythonCheck,
  { repair, context }: { repair: boolean; context: HandlerContext },
): Promise<DoctorRow> {
  try {
    const root = join(folder, 'python');
    const onProgress = (label: string) =>
      context.progress({ label, done: 0, total: null, unit: 'steps', etaSeconds: null });
    const python = await ensure({ root, build: repair, signal: context.signal, onProgress });
    return row(what, 'ok', python.description);
  } catch (error) {
    const { message, cause } = toErrorData(error);
    const inner = cause?.trim().split('\n').at(-1); // of a traceback the last line says what happened
    const detail = inner ? `${message} (${inner})` : message;
    const mend = remedy();
    const lacking = mend === repairCommand ? await whatPythonLacks() : null;
    return row(what, lacking === null ? 'warning' : 'missing', detail, lacking ?? mend);
  }
}

/** No repair makes an environment without a Python to make it from. */
async function whatPythonLacks(): Promise<string | null> {
  try {
    await findPython({});
    return null;
  } catch (error) {
    return toErrorData(error)
      .message.replace(/^No suitable Python was found; /, '')
      .replace(/\.$/, '');
  }
}

const nvidiaFile = '/dev/nvidiactl';

/** What llama.cpp computes on. It looks in a process of its own: a broken driver takes only that with it. */
async function deviceRow(logger: Logger): Promise<DoctorRow> {
  try {
    const { device, onGpu, freeBytes, totalBytes } = await probeDevice({ logger });
    if (onGpu)
      return row(
        'GPU',
        'ok',
        `${device}, ${(freeBytes / GB).toFixed(1)} GB free of ${(totalBytes / GB).toFixed(1)} GB`,
      );
    return existsSync(nvidiaFile)
      ? row('GPU', 'warning', `there is an NVIDIA GPU, but llama.cpp runs on ${device}`, 'update the NVIDIA driver')
      : row(
          'GPU',
          'warning',
          `none; models run on ${device}`,
          'use small models, or a machine with a GPU and its driver',
        );
  } catch (error) {
    const { message, cause } = toErrorData(error);
    const remedy = 'reinstall the GPU driver; with model.gpu "off" in the configuration models run on the CPU';
    return row('GPU', 'missing', cause ? `${message} (${cause})` : message, remedy);
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
