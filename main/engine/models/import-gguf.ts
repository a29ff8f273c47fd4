import { constants } from 'node:fs';
import { copyFile, open, realpath, rename, rm, stat, symlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { sha256File } from '../../node/file-hash.ts';
import { type GgufHeader, readGgufHeader } from './gguf-header.ts';
import { ensureModelsFolder } from './models-folder.ts';

export interface ImportedModel {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly header: GgufHeader;
}

/**
 * Brings a person's own GGUF into the models folder: as a symlink (`link`, no extra disk) or as a copy.
 * @throws MassError of readGgufHeader, conflict (the name is taken) or prerequisite (it cannot be written)
 */
export async function importGguf(
  path: string,
  options: { modelsFolder: string; link: boolean; signal?: AbortSignal },
): Promise<ImportedModel> {
  const header = await readGgufHeader(path);
  if (header.splitCount > 1)
    throw new MassError(
      'invalid_input',
      `${path} is one of ${header.splitCount} parts of a model; join them with llama-gguf-split --merge first.`,
    );
  const source = await realpath(path);
  const target = join(options.modelsFolder, basename(path));
  await ensureModelsFolder(options.modelsFolder);
  const taken = await realpath(target).catch(() => null); // absent: free
  if (taken !== null && taken !== source)
    throw new MassError('conflict', `${target} exists already; rename the file you add or remove the other one.`);
  const sha256 = await sha256File(source, options.signal ? { signal: options.signal } : {});
  if (taken === null) await place({ source, target, link: options.link });
  return { path: target, bytes: (await stat(source)).size, sha256, header };
}

async function place({ source, target, link }: { source: string; target: string; link: boolean }): Promise<void> {
  const part = `${target}.part`;
  try {
    if (link) {
      await symlink(source, target);
      return;
    }
    await copyFile(source, part, constants.COPYFILE_FICLONE);
    const file = await open(part, 'r');
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(part, target);
  } catch (cause) {
    await rm(part, { force: true });
    throw new MassError(
      'prerequisite',
      `${target} cannot be written; check free disk space and permissions, or add it as a link.`,
      { cause },
    );
  }
}
