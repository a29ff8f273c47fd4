/** Builds small GGUF files for tests: a real header and zeroed tensor data. */
export interface GgufFixture {
  readonly version?: number;
  readonly metadata?: readonly (readonly [string, string | number | readonly string[] | readonly number[]])[];
  /** F32 tensors: name and dimensions */
  readonly tensors?: readonly (readonly [string, readonly number[]])[];
}

const u32 = (value: number): Buffer => {
  const out = Buffer.alloc(4);
  out.writeUInt32LE(value);
  return out;
};
const u64 = (value: number): Buffer => {
  const out = Buffer.alloc(8);
  out.writeBigUInt64LE(BigInt(value));
  return out;
};
const text = (value: string): Buffer => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);

function valueBytes(value: string | number | readonly string[] | readonly number[]): Buffer {
  if (typeof value === 'string') return Buffer.concat([u32(8), text(value)]);
  if (typeof value === 'number') return Buffer.concat([u32(4), u32(value)]);
  const strings = typeof value[0] === 'string';
  const items = value.map((item) => (typeof item === 'string' ? text(item) : u32(item)));
  return Buffer.concat([u32(9), u32(strings ? 8 : 4), u64(value.length), ...items]);
}

export const smallModel: GgufFixture = {
  metadata: [
    ['general.architecture', 'llama'],
    ['general.name', 'Tiny'],
    ['general.file_type', 0],
    ['llama.context_length', 2048],
    ['tokenizer.ggml.model', 'gpt2'],
    ['tokenizer.ggml.tokens', ['a', 'b', 'c']],
    ['tokenizer.chat_template', '{{ messages }}'],
  ],
  tensors: [
    ['token_embd.weight', [4, 3]],
    ['output_norm.weight', [4]],
  ],
};

/** Bytes of the file; its tensors follow one another, each padded to 32 bytes. */
export function buildGguf({ version = 3, metadata = [], tensors = [] }: GgufFixture): Buffer {
  const parts = [Buffer.from('GGUF'), u32(version), u64(tensors.length), u64(metadata.length)];
  for (const [key, value] of metadata) parts.push(text(key), valueBytes(value));
  let offset = 0;
  for (const [name, dimensions] of tensors) {
    parts.push(text(name), u32(dimensions.length), ...dimensions.map(u64), u32(0), u64(offset));
    offset += Math.ceil((dimensions.reduce((a, b) => a * b, 1) * 4) / 32) * 32;
  }
  const header = Buffer.concat(parts);
  return Buffer.concat([header, Buffer.alloc(Math.ceil(header.length / 32) * 32 - header.length + offset)]);
}
