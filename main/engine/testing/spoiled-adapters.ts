import { readFileSync, writeFileSync } from 'node:fs';

/** One tensor of a safetensors file, float32, in its place in the file's bytes. */
interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** Changes the tensors of a safetensors file in place; `edit` may write into `values`. */
export function editSafetensors(path: string, edit: (tensor: Tensor) => void): void {
  const bytes = readFileSync(path);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  for (const [name, { dtype, shape, data_offsets: at }] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    if (dtype !== 'F32') throw new Error(`${name} is ${dtype}, not F32.`);
    const from = 8 + headerBytes + at[0];
    const values = Float32Array.from({ length: (at[1] - at[0]) / 4 }, (_, i) => bytes.readFloatLE(from + 4 * i));
    edit({ name, shape, values });
    for (const [i, value] of values.entries()) bytes.writeFloatLE(value, from + 4 * i);
  }
  writeFileSync(path, bytes);
}

/** What a conversion can get wrong without a word, done to a PEFT adapter. */
export const spoilers = {
  /** one module of the first layer is left out */
  droppedModule: ({ name, values }: Tensor): void => {
    if (name.includes('layers.0.mlp.down_proj.lora_B')) values.fill(0);
  },
  /** the value heads of linear attention in another order: rows of B are in blocks of `headDim` */
  swappedHeads: ({ name, shape, values }: Tensor): void => {
    if (!name.includes('in_proj_z.lora_B')) return;
    const half = ((shape[0] ?? 0) / 2) * (shape[1] ?? 0);
    const copy = values.slice();
    values.set(copy.subarray(half), 0);
    values.set(copy.subarray(0, half), half);
  },
  /** the scaling is lost: alpha / rank was 2 */
  unscaled: ({ name, values }: Tensor): void => {
    if (name.includes('lora_B')) for (const [i, value] of values.entries()) values[i] = value / 2;
  },
} as const;
