import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileAtomic } from '../../node/atomic-file.ts';
import type { ExperimentRow, GenerationRow } from '../store/repositories/experiments.ts';
import type { Store } from '../store/store.ts';

/** Where a generation's model card lies; relative to the data folder. */
export function cardPath({ name, experimentId }: ExperimentRow, { number }: GenerationRow): string {
  const safe = /^[A-Za-z0-9][\w.-]{0,99}$/.test(name) ? name : experimentId;
  return join('generations', `${safe}-L${number}`, 'README.md');
}

/** Puts a registered generation's card into its place, unless it is there. */
export async function placeCard(store: Store, experiment: ExperimentRow, generation: GenerationRow): Promise<void> {
  if (generation.cardHash === null) return;
  const path = join(store.folder, cardPath(experiment, generation));
  if (existsSync(path)) return;
  await mkdir(join(path, '..'), { recursive: true });
  writeFileAtomic(path, store.artifacts.text(generation.cardHash));
}
