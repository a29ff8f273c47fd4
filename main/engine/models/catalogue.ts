import { readFile } from 'node:fs/promises';
import { MassError } from '../../common/base/errors.ts';
import { parseJson } from '../../common/base/parse-json.ts';
import { ModelCatalogue, type ModelEntry } from '../../common/domain/model-catalogue.ts';
import { parseWith } from '../../common/domain/parse-with.ts';
import { resourcePath } from '../../node/project-root.ts';

/** The shipped catalogue, or one at `path`. @throws MassError not_found or invalid_input */
export async function readModelCatalogue(path: string = resourcePath('models.json')): Promise<ModelCatalogue> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new MassError('not_found', `The model catalogue ${path} cannot be read; restore the file.`, { cause });
  });
  return parseWith(ModelCatalogue, parseJson(text, path), path);
}

/** @throws MassError not_found listing the known ids */
export function findModel(catalogue: ModelCatalogue, id: string): ModelEntry {
  const entry = catalogue.models.find((model) => model.id === id);
  if (entry) return entry;
  const known = catalogue.models.map((model) => model.id).join(', ');
  throw new MassError('not_found', `No known model has the id "${id}"; choose one of ${known}.`);
}
