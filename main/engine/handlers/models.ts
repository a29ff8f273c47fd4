import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { MassError } from '../../common/base/errors.ts';
import { ModelConfig } from '../../common/domain/config.ts';
import type { ModelEntry } from '../../common/domain/model-catalogue.ts';
import { plannedBytes } from '../../common/domain/model-catalogue.ts';
import { parseWith } from '../../common/domain/parse-with.ts';
import type { ModelSummary } from '../../common/protocol/engine.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { planModel } from '../endpoints/ask-inference.ts';
import { findModel, readModelCatalogue } from '../models/catalogue.ts';
import { fetchModel } from '../models/fetch-model.ts';
import { readGgufHeader } from '../models/gguf-header.ts';
import { importGguf } from '../models/import-gguf.ts';
import type { ModelRow } from '../store/repositories/models.ts';
import type { HandlerParts } from './parts.ts';

const defaultContext = ModelConfig.parse({ id: 'any' }).contextSize;

type ModelHandlers = Pick<EngineHandlers, 'models.list' | 'models.add' | 'models.fetch' | 'models.plan'>;

/** The model registry: what is on this machine, and what can be fetched. */
export function modelHandlers({ store, logger }: HandlerParts): ModelHandlers {
  const modelsFolder = join(store.folder, 'models');
  return {
    'models.list': async () => {
      const catalogue = await readModelCatalogue();
      const registered = store.models.all();
      const known = new Set(registered.map((row) => row.modelId));
      return [...registered.map(summaryOf), ...catalogue.models.filter((entry) => !known.has(entry.id)).map(fetchable)];
    },
    'models.add': async ({ path, id }, { signal }) => {
      const imported = await importGguf(path, { modelsFolder, link: true, signal });
      const modelId = id ?? idFromPath(path);
      store.append({
        type: 'model.registered',
        modelId,
        path: imported.path,
        bytes: imported.bytes,
        sha256: imported.sha256,
        architecture: imported.header.architecture,
        source: `file ${path}`,
      });
      return summaryOf(requireModel(store, modelId));
    },
    'models.fetch': async ({ id, token }, { signal, progress }) => {
      const registered = store.models.byId(id);
      if (registered && existsSync(registered.path)) return summaryOf(registered);
      const entry = findModel(await readModelCatalogue(), id);
      const file = await fetchModel({
        entry,
        modelsFolder,
        signal,
        env: { ...process.env, HF_TOKEN: token },
        onProgress: ({ phase, bytes, total, etaSeconds }) =>
          progress({
            label: `${entry.title}: ${phase}`,
            done: bytes,
            total: total ?? null,
            unit: 'bytes',
            etaSeconds: etaSeconds ?? null,
          }),
      });
      const header = await readGgufHeader(file.path);
      store.append({
        type: 'model.registered',
        modelId: id,
        path: file.path,
        bytes: file.bytes,
        sha256: file.sha256,
        architecture: header.architecture,
        source: entry.sources[0] ?? 'catalogue',
      });
      return summaryOf(requireModel(store, id));
    },
    'models.plan': async ({ id, ...wanted }) => {
      const row = requireModel(store, id);
      const trained = (await readGgufHeader(row.path)).contextLength;
      // Without a wish: the longest context the model was trained for, up to what an experiment has by default.
      const contextSize = wanted.contextSize ?? Math.min(defaultContext, trained ?? defaultContext);
      const model = parseWith(ModelConfig, { id, ...wanted, contextSize }, `The plan for "${id}"`);
      return planModel({
        order: { model, path: row.path, sha256: row.sha256, adapter: null },
        logger,
      });
    },
  };
}

/** Errors: `not_found` for an id nobody registered, or whose file is gone. */
export function requireModel(store: HandlerParts['store'], id: string): ModelRow {
  const row = store.models.byId(id);
  if (!row)
    throw new MassError(
      'not_found',
      `The model "${id}" is not on this machine; fetch it with: mass models fetch ${id}`,
    );
  if (!existsSync(row.path))
    throw new MassError('not_found', `The file of "${id}" is gone (${row.path}); fetch or add it again.`);
  return row;
}

const summaryOf = (row: ModelRow): ModelSummary => ({
  id: row.modelId,
  title: row.modelId,
  state: existsSync(row.path) ? 'ready' : 'missing',
  bytes: row.bytes,
  path: row.path,
  sha256: row.sha256,
  architecture: row.architecture,
  source: row.source,
});

const fetchable = (entry: ModelEntry): ModelSummary => ({
  id: entry.id,
  title: entry.title,
  state: 'fetchable',
  bytes: plannedBytes(entry),
  path: null,
  sha256: entry.sha256 ?? null,
  architecture: entry.architecture,
  source: entry.sources[0] ?? '',
});

/** "My Model.Q4_K_M.gguf" -> "my-model.q4-k-m" */
const idFromPath = (path: string): string =>
  (path.split(/[\\/]/).pop() ?? 'model')
    .replace(/\.gguf$/i, '')
    .toLowerCase()
    .replace(/[^a-z0-9.]+/g, '-')
    .slice(0, 64);
