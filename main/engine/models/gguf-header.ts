import { type FileHandle, open } from 'node:fs/promises';
import { MassError } from '../../common/base/errors.ts';
import { AbsurdValue, GgufCursor, type GgufValue, headerLimits, NeedMoreBytes } from './gguf-cursor.ts';
import { fileTypes, tensorTypes } from './gguf-types.ts';

/** What is wrong with a file, in MassError.details.problem. */
export type GgufProblem = 'missing' | 'truncated' | 'not_gguf' | 'unsupported' | 'absurd';

export interface GgufHeader {
  readonly version: number;
  readonly architecture: string;
  /** general.name, or "" */
  readonly name: string;
  /** tokens the model was trained for; null when the file does not say */
  readonly contextLength: number | null;
  readonly tokenizerModel: string | null;
  readonly chatTemplate: string | null;
  readonly tensorCount: number;
  /** name of general.file_type, else the type that holds most weights */
  readonly quantisation: string;
  /** weights of all tensors */
  readonly parameterCount: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** bytes of the header; tensor data starts at the next multiple of general.alignment */
  readonly headerBytes: number;
  /** bytes a complete file has at least; null when a tensor has an unknown type */
  readonly completeBytes: number | null;
  /** parts the model is split into over several files; 1 when it is not */
  readonly splitCount: number;
}

/** Largest accepted header. A vocabulary of 250,000 tokens with its merges takes about 12 MiB. */
export const largestHeader = 128 << 20;
const firstRead = 1 << 20;
const magic = 0x46554747; // "GGUF", little-endian
const smallestEntry = { metadata: 8 + 1 + 4 + 1, tensor: 8 + 1 + 4 + 8 + 4 + 8 }; // bytes
const mostDimensions = 8;

/**
 * Reads and checks the header of a GGUF file: at most `largestHeader` bytes, whatever the file claims. Also checks that
 * the file is long enough for every tensor.
 * @throws MassError not_found or invalid_input with details.problem (GgufProblem)
 */
export async function readGgufHeader(path: string): Promise<GgufHeader> {
  const file = await open(path, 'r').catch((cause: unknown) => {
    throw new MassError('not_found', `The model file ${path} cannot be opened; check the path and its permissions.`, {
      details: { problem: 'missing' satisfies GgufProblem },
      cause,
    });
  });
  try {
    const status = await file.stat();
    if (!status.isFile()) throw wrong(path, 'not_gguf', 'is not a file; name the .gguf file itself');
    const header = await parseGrowing(file, path, status.size);
    const { completeBytes } = header;
    if (completeBytes !== null && status.size < completeBytes)
      throw wrong(path, 'truncated', `has ${status.size} of at least ${completeBytes} bytes; fetch or copy it again`);
    return header;
  } finally {
    await file.close();
  }
}

/** Parses a growing prefix of the file until it holds the whole header; the last attempt costs as much as all before. */
async function parseGrowing(file: FileHandle, path: string, fileBytes: number): Promise<GgufHeader> {
  const most = Math.min(fileBytes, largestHeader);
  for (let size = Math.min(firstRead, most); ; size = Math.min(4 * size, most)) {
    const buffer = await readPrefix(file, size);
    try {
      return parseGgufHeader(buffer, fileBytes);
    } catch (error) {
      if (error instanceof NotGguf) throw wrong(path, error.problem, error.message);
      if (error instanceof AbsurdValue)
        throw wrong(path, 'absurd', `is damaged (${error.message}); fetch or copy it again`);
      if (!(error instanceof NeedMoreBytes)) throw error;
      if (size < most && buffer.length === size) continue;
      if (fileBytes > largestHeader)
        throw wrong(path, 'absurd', 'has a header of more than 128 MiB; fetch or copy it again');
      throw wrong(path, 'truncated', `ends inside its header, after ${fileBytes} bytes; fetch or copy it again`);
    }
  }
}

async function readPrefix(file: FileHandle, size: number): Promise<Uint8Array> {
  const buffer = Buffer.allocUnsafe(size);
  let filled = 0;
  while (filled < size) {
    const { bytesRead } = await file.read(buffer, filled, size - filled, filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}

const wrong = (path: string, problem: GgufProblem, rest: string): MassError =>
  new MassError('invalid_input', `The model file ${path} ${rest}.`, { details: { problem } });

class NotGguf extends Error {
  readonly problem: GgufProblem;
  constructor(problem: GgufProblem, message: string) {
    super(message);
    this.problem = problem;
  }
}

/**
 * Parses the header from the first bytes of a file of `fileBytes` bytes.
 * Format: github.com/ggml-org/ggml docs/gguf.md, versions 2 and 3, little-endian.
 * @throws NeedMoreBytes, AbsurdValue or NotGguf; nothing else, and it allocates no more than `bytes` holds
 */
export function parseGgufHeader(bytes: Uint8Array, fileBytes: number): GgufHeader {
  const cursor = new GgufCursor(bytes, fileBytes);
  if (cursor.u32() !== magic)
    throw new NotGguf('not_gguf', 'is not a GGUF file; name a .gguf file or convert the model');
  const version = cursor.u32();
  if (version !== 2 && version !== 3)
    throw new NotGguf('unsupported', `has GGUF version ${version}; use a little-endian file of version 2 or 3`);
  const tensorCount = cursor.count('the number of tensors', smallestEntry.tensor);
  const metadataCount = cursor.count('the number of metadata entries', smallestEntry.metadata);
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < metadataCount; i++) {
    const key = cursor.string('a metadata key', headerLimits.keyBytes);
    metadata.set(key, cursor.value(key.slice(0, 80)));
  }
  const tensors = readTensors(cursor, tensorCount);
  const headerBytes = cursor.offset;
  const architecture = textOf(metadata, 'general.architecture');
  if (architecture === null)
    throw new NotGguf('not_gguf', 'names no architecture, so it is not a model; name the model file itself');
  const alignment = numberOf(metadata, 'general.alignment') ?? 32;
  if (!(alignment > 0 && alignment <= 1 << 20)) throw new AbsurdValue(`general.alignment is ${alignment}`);
  const dataStart = Math.ceil(headerBytes / alignment) * alignment;
  return {
    version,
    architecture,
    name: textOf(metadata, 'general.name') ?? '',
    contextLength: numberOf(metadata, `${architecture}.context_length`),
    tokenizerModel: textOf(metadata, 'tokenizer.ggml.model'),
    chatTemplate: textOf(metadata, 'tokenizer.chat_template'),
    tensorCount,
    quantisation: fileTypes.get(numberOf(metadata, 'general.file_type') ?? -1) ?? tensors.mainType,
    parameterCount: tensors.weights,
    metadata,
    headerBytes,
    completeBytes: tensors.dataBytes === null ? null : dataStart + tensors.dataBytes,
    splitCount: Math.max(1, numberOf(metadata, 'split.count') ?? 1),
  };
}

interface TensorTotals {
  readonly weights: number;
  readonly dataBytes: number | null;
  readonly mainType: string;
}

function readTensors(cursor: GgufCursor, count: number): TensorTotals {
  let weights = 0;
  let dataBytes: number | null = 0;
  const weightsByType = new Map<string, number>();
  for (let i = 0; i < count; i++) {
    const name = cursor.string('a tensor name', headerLimits.keyBytes).slice(0, 80);
    const dimensions = cursor.u32();
    if (dimensions > mostDimensions) throw new AbsurdValue(`tensor ${name} has ${dimensions} dimensions`);
    let elements = 1;
    for (let d = 0; d < dimensions; d++) elements *= cursor.u64(`a dimension of tensor ${name}`);
    if (!Number.isSafeInteger(elements)) throw new AbsurdValue(`tensor ${name} has ${elements} weights`);
    const typeNumber = cursor.u32();
    const offset = cursor.u64(`the offset of tensor ${name}`);
    const type = tensorTypes.get(typeNumber);
    weights += elements;
    const typeName = type?.name ?? `type ${typeNumber}`;
    weightsByType.set(typeName, (weightsByType.get(typeName) ?? 0) + elements);
    if (!type) dataBytes = null;
    else if (dataBytes !== null)
      dataBytes = Math.max(dataBytes, offset + Math.ceil(elements / type.weights) * type.bytes);
  }
  const [mainType] = [...weightsByType].reduce((most, next) => (next[1] > most[1] ? next : most), ['none', -1]);
  return { weights, dataBytes, mainType };
}

function textOf(metadata: ReadonlyMap<string, GgufValue>, key: string): string | null {
  const value = metadata.get(key);
  return typeof value === 'string' ? value : null;
}

function numberOf(metadata: ReadonlyMap<string, GgufValue>, key: string): number | null {
  const value = metadata.get(key);
  if (typeof value === 'bigint') return Number(value);
  return typeof value === 'number' ? value : null;
}
