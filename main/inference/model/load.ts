import { stat } from 'node:fs/promises';
import type { LlamaContext, LlamaModel } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { MemoryPlan } from '../../common/domain/memory-plan.ts';
import type { LoadOrder } from '../../common/protocol/inference.ts';
import { ExclusiveGate } from '../scheduler/exclusive-gate.ts';
import { fullBatchStrategy } from '../scheduler/full-batch.ts';
import { MetricsCounter } from '../scheduler/metrics.ts';
import { type Device, measureFree, openDevice } from './device.ts';
import { LlamaServedModel } from './llama-served-model.ts';
import { BATCH_TOKENS, checkpointBudget, type MemoryFree, planMemory, refusal } from './memory-plan.ts';
import { type ModelFile, readModelFile } from './model-file.ts';
import type { GenerateRequest, ServedModel } from './served-model.ts';

export interface LoadedModel extends ServedModel {
  readonly plan: MemoryPlan;
  /** Probability of every next id after the prompt, at temperature 1; for tests of the state. */
  nextTokenProbabilities(request: GenerateRequest): Promise<ReadonlyMap<number, number>>;
}

export interface LoadOptions {
  readonly logger: Logger;
  /** How free memory is measured; tests put a small machine here. */
  readonly measure?: (device: Device) => Promise<MemoryFree>;
}

/**
 * Loads a model for serving. The process should have been started with UV_THREADPOOL_SIZE=1 when it runs on the CPU:
 * decoding and sampling hop between libuv workers, and each worker keeps cold compute threads of its own.
 *
 * Throws MassError: not_found (no file), invalid_input (not a GGUF, damaged, unknown architecture, context beyond the
 * model's), prerequisite (memory: `details.plan` holds the plan with the nearest one that fits).
 */
export async function loadServedModel(order: LoadOrder, options: LoadOptions): Promise<LoadedModel> {
  const file = await readModelFile(order.path);
  checkContext(order, file);
  const { device, plan } = await placeModel(order, file, options);
  // When this throws, the llama.cpp instance is left to the garbage collector: a model that failed to load never
  // releases its hold on it, and disposing the instance would wait for that for ever.
  const model = await openModel(order, device, plan);
  try {
    return await openContext({ order, file, device, plan, model, ...options });
  } catch (error) {
    await model.dispose();
    await device.llama.dispose();
    throw error;
  }
}

/** The plan of an order against memory free now; loads no weights. */
export async function planServedModel(order: LoadOrder, options: LoadOptions): Promise<MemoryPlan> {
  const file = await readModelFile(order.path);
  checkContext(order, file);
  const device = await openDevice(order.model.gpu, options.logger);
  try {
    checkArchitecture(file, device);
    return await planOn(order, file, device, options);
  } finally {
    await device.llama.dispose();
  }
}

function checkContext(order: LoadOrder, { shape }: ModelFile): void {
  if (shape.trainContext > 0 && order.model.contextSize > shape.trainContext)
    throw new MassError(
      'invalid_input',
      `${order.model.id} was trained for ${shape.trainContext} tokens and model.contextSize is ${order.model.contextSize}; set it to at most ${shape.trainContext}.`,
      { details: { trainContext: shape.trainContext, contextSize: order.model.contextSize } },
    );
}

function checkArchitecture(file: ModelFile, device: Device): void {
  const architecture = file.info.metadata.general.architecture;
  const { _bindings } = device.llama as unknown as { _bindings: { getIsArchSupported(name: string): boolean } };
  if (!_bindings.getIsArchSupported(architecture))
    throw new MassError(
      'invalid_input',
      `${file.path} has the architecture "${architecture}", which this llama.cpp does not know; choose another model.`,
    );
}

async function planOn(
  order: LoadOrder,
  { shape }: ModelFile,
  device: Device,
  { measure = measureFree }: LoadOptions,
): Promise<MemoryPlan> {
  const adapterBytes = order.adapter === null ? 0 : await adapterSize(order.adapter.path);
  const { contextSize, sequences, kvType } = order.model;
  return planMemory({
    shape,
    request: { contextSize, sequences, kvType },
    free: await measure(device),
    adapterBytes,
  });
}

async function adapterSize(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    throw new MassError('not_found', `The adapter ${path} cannot be read; export it again or correct the path.`, {
      cause: error,
    });
  }
}

/** Opens the wanted device; with `auto`, a GPU that is too small gives way to the CPU when that fits. */
async function placeModel(
  order: LoadOrder,
  file: ModelFile,
  options: LoadOptions,
): Promise<{ device: Device; plan: MemoryPlan }> {
  const { logger } = options;
  const device = await openDevice(order.model.gpu, logger);
  try {
    checkArchitecture(file, device);
    const plan = await planOn(order, file, device, options);
    if (plan.fits) return { device, plan };
    if (order.model.gpu === 'auto' && device.onGpu) {
      const cpu = await openDevice('off', logger);
      const cpuPlan = await planOn(order, file, cpu, options);
      if (cpuPlan.fits) {
        logger.log('warn', `${refusal(plan, order.model.id)} Running on the CPU instead.`);
        await device.llama.dispose();
        return { device: cpu, plan: cpuPlan };
      }
      await cpu.llama.dispose();
    }
    throw new MassError('prerequisite', refusal(plan, order.model.id), { details: { plan } });
  } catch (error) {
    await device.llama.dispose();
    throw error;
  }
}

async function openModel(order: LoadOrder, device: Device, plan: MemoryPlan): Promise<LlamaModel> {
  try {
    return await device.llama.loadModel({
      modelPath: order.path,
      gpuLayers: plan.gpuLayers,
      // On the CPU the weights are repacked for its kernels; mapped pages would hold them a second time.
      useMmap: device.onGpu ? 'auto' : false,
      ignoreMemorySafetyChecks: true, // the plan has decided, with numbers
    });
  } catch (error) {
    const reason = device.lastError();
    throw new MassError(
      'invalid_input',
      `${order.path} could not be loaded${reason === '' ? '' : ` (${reason})`}; check its hash or fetch it again.`,
      { cause: error },
    );
  }
}

interface OpenContext extends LoadOptions {
  readonly order: LoadOrder;
  readonly file: ModelFile;
  readonly device: Device;
  readonly plan: MemoryPlan;
  readonly model: LlamaModel;
}

async function openContext(options: OpenContext): Promise<LoadedModel> {
  const { order, file, device, plan, model, logger, measure = measureFree } = options;
  const gate = new ExclusiveGate();
  const metrics = new MetricsCounter();
  let context: LlamaContext;
  try {
    context = await model.createContext({
      contextSize: plan.contextSize,
      sequences: plan.sequences,
      batchSize: BATCH_TOKENS,
      threads: device.threads,
      // A quantised value cache needs flash attention; otherwise the model and device decide.
      flashAttention: plan.kvType === 'q8_0' ? true : 'auto',
      experimentalKvCacheKeyType: plan.kvType === 'q8_0' ? 'Q8_0' : 'F16',
      experimentalKvCacheValueType: plan.kvType === 'q8_0' ? 'Q8_0' : 'F16',
      // Sliding-window layers keep the whole context, so that a rewind is exact without checkpoints.
      swaFullCache: true,
      batching: {
        itemPrioritizationStrategy: fullBatchStrategy({
          expected: () => gate.expected,
          onBatch: (sequences) => metrics.batch(sequences),
        }),
      },
      failedCreationRemedy: false,
      ignoreMemorySafetyChecks: true,
      ...(order.adapter === null ? {} : { lora: order.adapter.path }),
    });
  } catch (error) {
    const reason = device.lastError();
    throw new MassError(
      'prerequisite',
      `${order.model.id} was loaded but its context could not be made${reason === '' ? '' : ` (${reason})`}; lower model.sequences or model.contextSize${order.adapter === null ? '' : ', and check that the adapter belongs to this model'}.`,
      { cause: error },
    );
  }
  const budget = checkpointBudget({ shape: file.shape, free: await measure(device) }, plan);
  return new LlamaServedModel({
    order,
    file,
    device,
    plan,
    model,
    context,
    gate,
    metrics,
    logger,
    checkpoints: { perSequence: budget.count, bytes: budget.bytes },
  });
}
