import type { MemoryPlan } from '../../common/domain/memory-plan.ts';

/** What of a model decides its memory, in elements and bytes. */
export interface ModelShape {
  readonly fileBytes: number;
  readonly embedding: number;
  readonly feedForward: number;
  readonly vocabulary: number;
  readonly layers: number;
  /** key and value elements of all attention layers for one token */
  readonly kvElementsPerToken: number;
  /** state of all recurrent layers for one sequence, independent of its length */
  readonly recurrentBytes: number;
  /** inner width of a recurrent layer, 0 without any */
  readonly recurrentInner: number;
  readonly tiedOutputBytes: number;
  /** tokens the model was trained for, 0 when the file does not say */
  readonly trainContext: number;
}

export type KvType = 'f16' | 'q8_0';

export interface PlanRequest {
  readonly contextSize: number;
  readonly sequences: number;
  readonly kvType: KvType;
}

export interface MemoryFree {
  /** what `info.device` says */
  readonly device: string;
  /** on a GPU: VRAM free and in all; else RAM */
  readonly freeBytes: number;
  readonly totalBytes: number;
  readonly onGpu: boolean;
  /** RAM free, where checkpoints live whatever the device */
  readonly ramFreeBytes: number;
}

/** Tokens of one llama.cpp batch: a full prefill slice; decode steps of the others share it. */
export const BATCH_TOKENS = 512;
/** Checkpoints of one sequence at most; each copies the recurrent state (about 150 MiB for a 27B). */
export const CHECKPOINTS_PER_SEQUENCE = 8;
const CHECKPOINTS_AT_LEAST = 2;

const MiB = 2 ** 20;
const GB = 1e9;
/** llama.cpp pads a sequence's cells to this. */
const CONTEXT_STEP = 256;
/** The nearest plan does not go below this context: a team's conversation would not fit in less. */
const SMALLEST_CONTEXT = 8192;

/** Bytes of one element: q8_0 stores 32 values in 34 bytes. */
const KV_BYTES: Record<KvType, number> = { f16: 2, q8_0: 34 / 32 };

const padded = (contextSize: number): number => Math.ceil(contextSize / CONTEXT_STEP) * CONTEXT_STEP;

/**
 * f32 buffers of the graph for one batch: logits, the widest activations (three of the feed-forward width, some of the
 * embedding width, and a recurrent layer's chunked products), and the attention mask of one sequence. Upper bounds, compared
 * with llama.cpp's own allocation in a test. Assumes flash attention: without it scores would be materialised.
 */
export function computeBytes(shape: ModelShape, request: PlanRequest): number {
  const perToken =
    shape.vocabulary +
    3 * shape.feedForward +
    8 * shape.embedding +
    16 * shape.recurrentInner +
    padded(request.contextSize);
  return 4 * BATCH_TOKENS * perToken + 4 * MiB;
}

export function kvBytes(shape: ModelShape, { contextSize, sequences, kvType }: PlanRequest): number {
  return sequences * (padded(contextSize) * shape.kvElementsPerToken * KV_BYTES[kvType] + shape.recurrentBytes);
}

export interface PlanOptions {
  readonly shape: ModelShape;
  readonly request: PlanRequest;
  readonly free: MemoryFree;
  readonly adapterBytes: number;
  /** the library's own figure for a context (KV and compute), when it has one; the larger counts */
  readonly contextBytesFloor?: number;
}

/**
 * Bytes needed on the device against bytes free there. Checkpoints live in RAM: on a GPU they do not count as needed,
 * their number is bounded by the RAM there is instead (`checkpointBudget`).
 */
export function planMemory(options: PlanOptions): MemoryPlan {
  const plan = withoutNearest(options, options.request);
  if (plan.fits) return plan;
  const nearest = nearestPlan(options);
  return {
    ...plan,
    nearest:
      nearest === null
        ? null
        : {
            contextSize: nearest.contextSize,
            sequences: nearest.sequences,
            kvType: nearest.kvType,
            neededBytes: nearest.neededBytes,
          },
  };
}

function withoutNearest(options: PlanOptions, request: PlanRequest): MemoryPlan {
  const { shape, free } = options;
  const kv = kvBytes(shape, request);
  const floor = request === options.request ? (options.contextBytesFloor ?? 0) : 0;
  const checkpoints = checkpointBudget(options, request).bytes * request.sequences;
  const parts = {
    weights: shape.fileBytes + shape.tiedOutputBytes,
    kv,
    compute: Math.max(computeBytes(shape, request), floor - kv),
    checkpoints,
    adapter: options.adapterBytes,
    slack: slackBytes(free),
  };
  const neededBytes =
    parts.weights + parts.kv + parts.compute + parts.adapter + parts.slack + (free.onGpu ? 0 : checkpoints);
  return {
    fits: neededBytes <= free.freeBytes,
    device: free.device,
    ...request,
    gpuLayers: free.onGpu ? shape.layers + 1 : 0,
    parts,
    neededBytes,
    freeBytes: free.freeBytes,
    totalBytes: free.totalBytes,
    marginBytes: free.freeBytes - neededBytes,
    nearest: null,
  };
}

/** On a GPU, running out aborts the process, so more is left: other programs and fragmentation use VRAM too. */
function slackBytes(free: MemoryFree): number {
  return free.onGpu ? Math.max(1.5 * GB, 0.03 * free.totalBytes) : 0.5 * GB;
}

/** Checkpoints of one sequence: up to 8, within a quarter of the free RAM for all of them, and never fewer than 2. */
export function checkpointBudget(
  { shape, free }: Pick<PlanOptions, 'shape' | 'free'>,
  request: PlanRequest,
): { count: number; bytes: number } {
  if (shape.recurrentBytes === 0) return { count: 0, bytes: 0 };
  const affordable = Math.floor(free.ramFreeBytes / 4 / (request.sequences * shape.recurrentBytes));
  const count = Math.min(CHECKPOINTS_PER_SEQUENCE, Math.max(CHECKPOINTS_AT_LEAST, affordable));
  return { count, bytes: count * shape.recurrentBytes };
}

/** Fewer sequences first, then a shorter context, then a quantised cache: in order of what it costs the work. */
function nearestPlan(options: PlanOptions): MemoryPlan | null {
  const { request } = options;
  const types: KvType[] = request.kvType === 'f16' ? ['f16', 'q8_0'] : ['q8_0'];
  for (const kvType of types) {
    for (let sequences = request.sequences; sequences >= 1; sequences--) {
      const plan = withoutNearest(options, { ...request, sequences, kvType });
      if (plan.fits) return plan;
    }
    const contextSize = longestContext(options, kvType);
    if (contextSize !== null) return withoutNearest(options, { contextSize, sequences: 1, kvType });
  }
  return null;
}

/** Longest context of a single sequence that fits, by bisection over multiples of the step: need grows with length. */
function longestContext(options: PlanOptions, kvType: KvType): number | null {
  const fits = (steps: number): boolean =>
    withoutNearest(options, { contextSize: steps * CONTEXT_STEP, sequences: 1, kvType }).fits;
  let low = Math.ceil(Math.min(SMALLEST_CONTEXT, options.request.contextSize) / CONTEXT_STEP);
  if (!fits(low)) return null;
  let high = Math.ceil(options.request.contextSize / CONTEXT_STEP);
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low * CONTEXT_STEP;
}

const gb = (bytes: number): string => `${(bytes / GB).toFixed(1)} GB`;

/** One sentence for a plan that does not fit: numbers, and the way out. */
export function refusal(plan: MemoryPlan, id: string): string {
  const { parts, nearest } = plan;
  const need =
    `${id} with ${plan.sequences} x ${plan.contextSize} tokens needs ${gb(plan.neededBytes)} ` +
    `(weights ${gb(parts.weights)}, cache ${gb(parts.kv)}, compute ${gb(parts.compute)}, adapter ${gb(parts.adapter)}, slack ${gb(parts.slack)}) ` +
    `and ${gb(plan.freeBytes)} of ${gb(plan.totalBytes)} are free on ${plan.device}`;
  const way =
    nearest === null
      ? 'choose a smaller model or quantisation, or free memory'
      : `set model.sequences ${nearest.sequences}, model.contextSize ${nearest.contextSize}, model.kvType ${nearest.kvType} (${gb(nearest.neededBytes)}), or free memory`;
  return `${need}; ${way}.`;
}
