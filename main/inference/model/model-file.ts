import { stat } from 'node:fs/promises';
import { type GgufFileInfo, readGgufFileInfo } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { ModelShape } from './memory-plan.ts';

export interface ModelFile {
  readonly path: string;
  readonly info: GgufFileInfo;
  readonly shape: ModelShape;
}

/** Reads a GGUF's header: no weights, no model library. Errors say what is wrong with the file and what to do. */
export async function readModelFile(path: string): Promise<ModelFile> {
  let bytes: number;
  try {
    const found = await stat(path);
    if (!found.isFile()) throw new MassError('invalid_input', `${path} is not a file; give the path of a GGUF model.`);
    bytes = found.size;
  } catch (error) {
    if (error instanceof MassError) throw error;
    throw new MassError('not_found', `The model file ${path} cannot be read; fetch the model or correct the path.`, {
      cause: error,
    });
  }
  let info: GgufFileInfo;
  try {
    info = await readGgufFileInfo(path, { sourceType: 'filesystem', logWarnings: false });
  } catch (error) {
    throw new MassError('invalid_input', `${path} is not a GGUF model or its header is damaged; fetch it again.`, {
      cause: error,
    });
  }
  const tensors = info.fullTensorInfo ?? [];
  const last = tensors.at(-1);
  if (last === undefined || last.name === '' || Number(last.fileOffset) >= bytes)
    throw new MassError('invalid_input', `${path} is cut short (${bytes} bytes); fetch it again.`);
  return { path, info, shape: modelShape(info, bytes) };
}

const numberOr = (value: unknown, otherwise: number): number => (typeof value === 'number' ? value : otherwise);

/** What a per-layer setting says for one layer: GGUF holds one number, or a list with one for each. */
const perLayer = (value: unknown, layer: number, otherwise: number): number =>
  numberOr(Array.isArray(value) ? value[layer] : value, otherwise);

/** A layer is recurrent when it has state-space tensors; this holds for every hybrid of llama.cpp, whatever its interval. */
export function modelShape(info: GgufFileInfo, fileBytes: number): ModelShape {
  const meta = info.architectureMetadata as Readonly<Record<string, unknown>> & {
    readonly attention?: Readonly<Record<string, unknown>>;
    readonly ssm?: Readonly<Record<string, unknown>>;
  };
  const names = new Set((info.fullTensorInfo ?? []).map((tensor) => tensor.name));
  const embedding = numberOr(meta.embedding_length, 0);
  const layers = numberOr(meta.block_count, 0);
  const heads = perLayer(meta.attention?.head_count, 0, 1);
  const headLength = embedding / heads;
  const ssm = {
    conv: numberOr(meta.ssm?.conv_kernel, 0),
    inner: numberOr(meta.ssm?.inner_size, 0),
    state: numberOr(meta.ssm?.state_size, 0),
    groups: numberOr(meta.ssm?.group_count, 0),
  };
  let kvElementsPerToken = 0;
  let recurrentLayers = 0;
  for (let layer = 0; layer < layers; layer++) {
    if (names.has(`blk.${layer}.ssm_conv1d.weight`)) {
      recurrentLayers++;
      continue;
    }
    const kvHeads = perLayer(meta.attention?.head_count_kv, layer, heads);
    kvElementsPerToken +=
      kvHeads * (numberOr(meta.attention?.key_length, headLength) + numberOr(meta.attention?.value_length, headLength));
  }
  const tokens = info.metadata.tokenizer?.ggml?.tokens;
  const tokenEmbedding = (info.fullTensorInfo ?? []).find((tensor) => tensor.name === 'token_embd.weight');
  const vocabulary = Number(tokenEmbedding?.dimensions[1] ?? tokens?.length ?? 0);
  return {
    fileBytes,
    embedding,
    feedForward: perLayer(meta.feed_forward_length, 0, embedding * 4),
    vocabulary,
    layers,
    kvElementsPerToken,
    // Per sequence: convolution window and matrix state, both f32 (llama_hparams::n_embd_r and n_embd_s of llama.cpp).
    recurrentBytes:
      recurrentLayers *
      4 *
      (Math.max(0, ssm.conv - 1) * (ssm.inner + 2 * ssm.groups * ssm.state) + ssm.state * ssm.inner),
    recurrentInner: recurrentLayers > 0 ? ssm.inner : 0,
    // A tied output head is held twice: once as embedding, once in the layout of the matrix kernels (at most f16).
    tiedOutputBytes: names.has('output.weight') ? 0 : Math.min(2 * embedding * vocabulary, fileBytes),
    trainContext: numberOr(meta.context_length, 0),
  };
}
