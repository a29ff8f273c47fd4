import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { MergedModel } from '../../common/protocol/export.ts';
import type { TrainerMachine, TrainerModel } from '../../common/protocol/trainer.ts';
import { requireFreeBytes } from '../../node/free-disk.ts';
import { newId } from '../../node/ids.ts';
import { syncPath } from '../../node/sync-path.ts';
import { readGgufHeader } from '../models/gguf-header.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';

export type MergedType = 'bf16' | 'f16' | 'q8_0';

export interface MergeWish {
  /** the generation as the trainer knows it: at least one adapter */
  readonly model: TrainerModel;
  /** GGUF that is served, for the number of weights */
  readonly servedGguf: string;
  /** of the merged files: "first-L1" */
  readonly title: string;
  readonly type: MergedType;
  /** absolute; must not exist */
  readonly out: string;
  /** model card; "" for none */
  readonly card: string;
  readonly machine: TrainerMachine;
}

export interface MergeParts {
  readonly trainer: TrainerEngine;
  readonly llamaCpp: string;
  readonly doing: (what: string) => void;
  readonly signal: AbortSignal;
}

const bytesPerWeight: Readonly<Record<MergedType, number>> = { bf16: 2, f16: 2, q8_0: 34 / 32 };

/** Refusals that need no work: an existing folder, a parent that is not there, a full disk. */
export async function checkMerge({ out, type, servedGguf }: MergeWish): Promise<void> {
  if (existsSync(out))
    throw new MassError('conflict', `${out} exists and is never overwritten; name a folder that does not exist.`);
  const parent = await stat(dirname(out)).catch(() => null); // absent: refused like a file
  if (!parent?.isDirectory()) throw new MassError('not_found', `There is no folder ${dirname(out)} to write into.`);
  const { parameterCount } = await readGgufHeader(servedGguf);
  await requireFreeBytes(out, parameterCount * (bytesPerWeight.bf16 + bytesPerWeight[type]), 'The merged model');
}

/**
 * Writes base + adapters as BF16 safetensors and as one GGUF into a new folder, which has its name only when it is whole;
 * a kill leaves a folder that ends in .partial. Whoever calls holds the device. Errors: those of `checkMerge` and of the
 * trainer.
 */
export async function mergeGeneration(wish: MergeWish, parts: MergeParts): Promise<MergedModel> {
  const { model, machine, title, type, out, card } = wish;
  const { trainer, llamaCpp, doing, signal } = parts;
  await checkMerge(wish);
  const adapter = model.merged.at(-1);
  if (adapter === undefined) throw new MassError('usage', 'L0 has no adapter; it is the base model itself.');
  const partial = `${out}.${newId('tmp')}.partial`;
  const gguf = `${title}-${type.toUpperCase()}.gguf`;
  try {
    await mkdir(partial);
    doing('merging base and adapters');
    const output = join(partial, 'safetensors');
    await trainer.merge({ model: { ...model, merged: model.merged.slice(0, -1) }, adapter, output, machine }, signal);
    doing(`writing ${gguf}`);
    const order = { folder: output, output: join(partial, gguf), type, llamaCpp };
    const { sha256, bytes } = await trainer.convertModel(order, signal);
    if (card !== '') await writeFile(join(partial, 'README.md'), card, { flag: 'wx' });
    for (const entry of await readdir(partial)) await syncPath(join(partial, entry));
    await place(partial, out);
    return { folder: out, safetensors: 'safetensors', gguf, ggufBytes: bytes, ggufSha256: sha256 };
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

/** Renaming a folder onto an empty one would replace it. */
async function place(partial: string, out: string): Promise<void> {
  if (existsSync(out)) throw new MassError('conflict', `${basename(out)} came to be while the model was merged.`);
  await syncPath(partial);
  await rename(partial, out);
  await syncPath(dirname(out));
}
