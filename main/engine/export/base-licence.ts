import { readModelCatalogue } from '../models/catalogue.ts';
import { readGgufHeader } from '../models/gguf-header.ts';
import type { ModelRow } from '../store/repositories/models.ts';

/** The licence of a model: what its file says, else the catalogue's entry of the same file; null when neither does. */
export async function baseLicence({ path, sha256, modelId, source }: ModelRow): Promise<string | null> {
  const header = await readGgufHeader(path).catch(() => null); // a moved file has no say; the card does not fail for it
  const said = header?.metadata.get('general.license');
  if (typeof said === 'string' && said !== '') return said;
  const { models } = await readModelCatalogue();
  const entry = models.find((model) =>
    model.sha256 === undefined ? model.id === modelId && model.sources.includes(source) : model.sha256 === sha256,
  );
  return entry?.licence ?? null;
}
