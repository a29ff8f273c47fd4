import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import type { TrainerModel } from '../../common/protocol/trainer.ts';
import { sha256File } from '../../node/file-hash.ts';
import { syncPath } from '../../node/sync-path.ts';
import { adapterFile } from '../serve-target.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';

export interface AdapterOrder {
  readonly trainer: TrainerEngine;
  /** folder of llama.cpp's conversion scripts */
  readonly llamaCpp: string;
  readonly dataFolder: string;
  /** a folder of the caller's own, for the file while it is made */
  readonly scratch: string;
  /** the base, with every adapter before this one */
  readonly model: TrainerModel;
  /** PEFT folder of the new adapter */
  readonly adapter: string;
  readonly signal: AbortSignal;
}

export interface StoredAdapter {
  readonly adapterSha256: string;
  readonly bytes: number;
  readonly rank: number;
}

/**
 * Converts the adapters of a lineage, concatenated by rank, to one GGUF named by its content. The same adapters give the
 * same bytes, so a file that is there already is the one. Errors: those of the trainer; `conflict` for a damaged file.
 */
export async function storeAdapter(order: AdapterOrder): Promise<StoredAdapter> {
  const { trainer, llamaCpp, dataFolder, scratch, model, adapter, signal } = order;
  const output = join(scratch, 'adapter.gguf');
  const adapters = [...model.merged, adapter];
  const { rank } = await trainer.convert({ model, adapters, output, type: 'f16', llamaCpp }, signal);
  const adapterSha256 = await sha256File(output, { signal });
  const { size: bytes } = await stat(output);
  const path = adapterFile(dataFolder, adapterSha256);
  if (await holdsAdapter(dataFolder, adapterSha256, signal)) await rm(output);
  else {
    await mkdir(dirname(path), { recursive: true });
    await syncPath(output);
    await rename(output, path);
    await syncPath(dirname(path));
  }
  return { adapterSha256, bytes, rank };
}

/** Whether the adapter lies in its place. Errors: `conflict` when other bytes have its name. */
export async function holdsAdapter(dataFolder: string, adapterSha256: string, signal: AbortSignal): Promise<boolean> {
  const path = adapterFile(dataFolder, adapterSha256);
  const there = await stat(path).catch(() => null); // absent: to be made
  if (!there) return false;
  if ((await sha256File(path, { signal })) === adapterSha256) return true;
  throw new MassError(
    'conflict',
    `${path} is damaged: its content is not what its name says; remove it, then run again.`,
  );
}
