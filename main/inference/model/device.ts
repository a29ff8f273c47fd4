import { availableParallelism } from 'node:os';
import { getLlama, type Llama, LlamaLogLevel } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { Logger, LogLevel } from '../../common/base/logger.ts';
import type { LoadOrder } from '../../common/protocol/inference.ts';
import { measureRam } from './free-memory.ts';
import type { MemoryFree } from './memory-plan.ts';

export interface Device {
  readonly llama: Llama;
  readonly description: string;
  readonly onGpu: boolean;
  /** compute threads of a context */
  readonly threads: number;
  /** what llama.cpp last said went wrong; it reports reasons only in its log */
  lastError(): string;
}

/**
 * Opens llama.cpp on the wanted device with the shipped binaries: nothing is built or downloaded. A GPU that does not
 * come up is reported and the CPU takes over, because an experiment that runs slowly is better than one that does not.
 */
export async function openDevice(gpu: LoadOrder['model']['gpu'], logger: Logger): Promise<Device> {
  if (gpu === 'off') return open(false, '', logger);
  try {
    return await open(gpu, '', logger);
  } catch (error) {
    logger.log('warn', `The ${gpu} device did not come up; running on the CPU.`, { error: String(error) });
    return open(false, `, because ${gpu} did not come up`, logger);
  }
}

async function open(gpu: 'auto' | 'cuda' | 'metal' | 'vulkan' | false, note: string, logger: Logger): Promise<Device> {
  let lastError = '';
  let llama: Llama;
  try {
    llama = await getLlama({
      gpu,
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      logLevel: LlamaLogLevel.warn,
      logger: (level, message) => {
        if (level === LlamaLogLevel.error || level === LlamaLogLevel.fatal) lastError = message.trim();
        logger.log(mapLevel(level), message.trim());
      },
    });
  } catch (error) {
    throw new MassError(
      'prerequisite',
      'No llama.cpp binary for this system was found; run npm ci again with optional dependencies.',
      { cause: error },
    );
  }
  const threads = Math.max(1, Math.min(availableParallelism(), llama.cpuMathCores));
  const onGpu = llama.gpu !== false;
  if (!onGpu && process.env.UV_THREADPOOL_SIZE === undefined)
    logger.log('warn', 'UV_THREADPOOL_SIZE is not set; starting this process with 1 about doubles decoding on a CPU.');
  const names = onGpu ? await llama.getGpuDeviceNames() : [];
  return {
    llama,
    onGpu,
    threads,
    description: onGpu ? `${llama.gpu}: ${names.join(', ')}` : `CPU (${threads} threads${note})`,
    lastError: () => lastError,
  };
}

function mapLevel(level: LlamaLogLevel): LogLevel {
  if (level === LlamaLogLevel.error || level === LlamaLogLevel.fatal) return 'error';
  return level === LlamaLogLevel.warn ? 'warn' : 'debug';
}

/** Memory free right now on the device. */
export async function measureFree(device: Device): Promise<MemoryFree> {
  const ram = await measureRam();
  if (!device.onGpu) return { device: device.description, onGpu: false, ...ram, ramFreeBytes: ram.freeBytes };
  const vram = await device.llama.getVramState();
  // Unified memory (Apple): weights and checkpoints share what the system has left.
  const freeBytes = vram.unifiedSize > 0 ? Math.min(vram.free, ram.freeBytes) : vram.free;
  return {
    device: device.description,
    onGpu: true,
    freeBytes,
    totalBytes: vram.total,
    ramFreeBytes: ram.freeBytes,
  };
}

/** What a model with `gpu: auto` would run on; loads nothing. */
export async function probeDevice({ logger }: { logger: Logger }): Promise<MemoryFree> {
  const device = await openDevice('auto', logger);
  try {
    return await measureFree(device);
  } finally {
    await device.llama.dispose();
  }
}
