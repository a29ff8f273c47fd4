import { silentLogger } from '../../common/base/logger.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import { CompletionService } from '../server/completion-service.ts';
import { InferenceServer } from '../server/inference-server.ts';
import { Owners } from '../server/owners.ts';
import { createMapLedger, createScriptedFormat, hashMessage } from './scripted-format.ts';
import { ScriptedModel, type ScriptedModelOptions } from './scripted-model.ts';

export interface ScriptedServerOptions extends ScriptedModelOptions {
  readonly record?: (record: CompletionRecord) => Promise<void>;
  readonly loaded?: boolean;
  readonly maxQueued?: number;
  readonly keepAliveMs?: number;
  readonly socketPath?: string;
}

/** The endpoint over a scripted model in this process; the token `secret` belongs to the owner `episode`. */
export async function startScriptedServer(options: ScriptedServerOptions) {
  const model = new ScriptedModel(options);
  const owners = new Owners(createMapLedger);
  owners.grant('secret', 'episode', []);
  const records: CompletionRecord[] = [];
  const progress: { requestId: string; from: number; sampledIds: number[] }[] = [];
  const server = new InferenceServer({
    owners,
    logger: silentLogger,
    socketPath: options.socketPath ?? null,
    ...(options.keepAliveMs === undefined ? {} : { keepAliveMs: options.keepAliveMs }),
  });
  const service = new CompletionService({
    model,
    format: createScriptedFormat(model),
    hashMessage,
    record: async (record) => {
      await options.record?.(record);
      records.push(record);
    },
    reportProgress: (piece) => progress.push(piece),
    maxQueued: options.maxQueued ?? 100,
  });
  if (options.loaded !== false) server.serve(service);
  const port = await server.listen();
  const url = `http://127.0.0.1:${port}`;
  const post = (path: string, body: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer secret', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });
  const chat = (fields: Record<string, unknown> = {}, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    post(
      '/v1/chat/completions',
      { model: 'scripted', messages: [{ role: 'user', content: 'hi' }], ...fields },
      headers,
      signal,
    );
  return { model, owners, records, progress, server, url, port, post, chat };
}

export type ScriptedServer = Awaited<ReturnType<typeof startScriptedServer>>;
