import { existsSync } from 'node:fs';
import type { LoadOrder } from '../../common/protocol/inference.ts';

/** Names and prefixes of what the inference process needs; secrets of the engine's environment are not among them. */
const names = [
  'PATH',
  'HOME',
  'USER',
  'TMPDIR',
  'TEMP',
  'TMP',
  'LANG',
  'TZ',
  'LD_LIBRARY_PATH',
  'DYLD_LIBRARY_PATH',
  'SYSTEMROOT',
];
const prefixes = ['LC_', 'CUDA_', 'NVIDIA_', 'GGML_', 'VK_', 'HIP_', 'ROCR_', 'HSA_', 'OMP_', 'NODE_LLAMA_CPP_'];

/**
 * On a CPU every decode and every sampling step is handed to libuv's worker threads, each of which keeps compute threads
 * of its own; with one worker they stay warm, which doubles the speed of decoding.
 */
export function inferenceEnvironment(from: NodeJS.ProcessEnv, cpu: boolean): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(from)) {
    const wanted = names.includes(name) || prefixes.some((prefix) => name.startsWith(prefix));
    if (wanted && value !== undefined) environment[name] = value;
  }
  if (cpu) environment.UV_THREADPOOL_SIZE = '1';
  return environment;
}

const gpuDevices = ['/dev/nvidiactl', '/dev/dri', '/dev/kfd'];

/** Whether a model loaded with this setting will run on the CPU; a guess from device files where it is `auto`. */
export function runsOnCpu(gpu: LoadOrder['model']['gpu']): boolean {
  if (gpu === 'off') return true;
  return gpu === 'auto' && process.platform === 'linux' && !gpuDevices.some((path) => existsSync(path));
}
