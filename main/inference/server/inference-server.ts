import { chmodSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { z } from 'zod';
import type { AsyncDisposable } from '../../common/base/disposable.ts';
import type { Logger } from '../../common/base/logger.ts';
import { ApiError, fromZodError, toApiError } from './api-error.ts';
import { chatRoute } from './chat-route.ts';
import type { CompletionService } from './completion-service.ts';
import type { Owner, Owners } from './owners.ts';
import { readJsonBody } from './read-body.ts';
import { sendError, sendJson } from './send-json.ts';

export interface InferenceServerOptions {
  readonly owners: Owners;
  readonly logger: Logger;
  /** Also listen here, with the same routes. */
  readonly socketPath: string | null;
  /** Silence in a stream after which a keepalive comment is sent. */
  readonly keepAliveMs?: number;
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly owner: Owner;
}

const TokenizeBody = z.object({ text: z.string().max(4 * 1024 * 1024), ids: z.boolean().optional() });

/** The OpenAI-compatible endpoint on 127.0.0.1 and, when asked for, a unix socket. Serves errors until a model is there. */
export class InferenceServer implements AsyncDisposable {
  readonly #options: InferenceServerOptions;
  readonly #servers: Server[] = [];
  readonly #stopping = new AbortController();
  #service: CompletionService | null = null;

  constructor(options: InferenceServerOptions) {
    this.#options = options;
  }

  /** Returns the TCP port. */
  async listen(): Promise<number> {
    const tcp = this.#createServer(true);
    await listening(tcp, () => tcp.listen(0, '127.0.0.1'));
    const { socketPath } = this.#options;
    if (socketPath !== null) {
      // What a killed predecessor left; the engine's lock guarantees that nobody listens on it.
      rmSync(socketPath, { force: true });
      const unix = this.#createServer(false);
      await listening(unix, () => unix.listen(socketPath));
      chmodSync(socketPath, 0o600);
    }
    return (tcp.address() as AddressInfo).port;
  }

  /** From now on requests are answered by this model. */
  serve(service: CompletionService): void {
    this.#service = service;
  }

  async dispose(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(
      this.#servers.splice(0).map(
        (server) =>
          new Promise<void>((resolve) => {
            // Answers in flight are aborted above and get a moment to say so.
            const timer = setTimeout(() => server.closeAllConnections(), 200);
            server.close(() => {
              clearTimeout(timer);
              resolve();
            });
          }),
      ),
    );
  }

  #createServer(checkHost: boolean): Server {
    const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
      void this.#handle(request, response, checkHost);
    });
    server.on('clientError', answerUnreadable);
    this.#servers.push(server);
    return server;
  }

  async #handle(request: IncomingMessage, response: ServerResponse, checkHost: boolean): Promise<void> {
    try {
      if (checkHost) checkHostHeader(request);
      await this.#route(request, response);
    } catch (error) {
      const answer = toApiError(error);
      if (answer.status >= 500 && !response.destroyed) {
        this.#options.logger.log('error', answer.message, {
          status: answer.status,
          code: answer.code,
          stack: error instanceof Error ? error.stack : undefined,
        });
      }
      sendError(response, answer);
    } finally {
      // A refused request may still be sending its body; it is read to the end so that the answer arrives.
      request.resume();
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const routes: Record<string, [method: string, run: () => Promise<void> | void]> = {
      '/health': ['GET', () => this.#health(response)],
      '/metrics': ['GET', () => this.#metrics(request, response)],
      '/v1/models': ['GET', () => this.#models(request, response)],
      '/v1/tokenize': ['POST', () => this.#tokenize(this.#exchange(request, response))],
      '/v1/chat/completions': ['POST', () => this.#chat(this.#exchange(request, response))],
    };
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route === undefined) {
      throw new ApiError(404, `There is nothing at ${path.slice(0, 200)}.`, { code: 'unknown_url' });
    }
    const [method, run] = route;
    if (request.method !== method) {
      throw new ApiError(405, `Use ${method} for ${path}.`, { code: 'wrong_method', headers: { allow: method } });
    }
    await run();
  }

  #health(response: ServerResponse): void {
    const info = this.#service?.model.info;
    if (info === undefined) sendJson(response, 503, { status: 'loading' });
    else sendJson(response, 200, { status: 'ok', model: info.id });
  }

  #metrics(request: IncomingMessage, response: ServerResponse): void {
    this.#owner(request);
    sendJson(response, 200, this.#loaded().model.metrics());
  }

  #models(request: IncomingMessage, response: ServerResponse): void {
    this.#owner(request);
    const info = this.#service?.model.info;
    const data =
      info === undefined
        ? []
        : [{ id: info.id, object: 'model', created: 0, owned_by: 'local', context_length: info.contextSize }];
    sendJson(response, 200, { object: 'list', data });
  }

  async #tokenize({ request, response }: Exchange): Promise<void> {
    const { model } = this.#loaded();
    const parsed = TokenizeBody.safeParse(await readJsonBody(request));
    if (!parsed.success) throw fromZodError(parsed.error);
    const ids = model.tokenize(parsed.data.text, { special: false });
    sendJson(response, 200, { tokens: ids.length, ...(parsed.data.ids === true ? { ids } : {}) });
  }

  async #chat({ request, response, owner }: Exchange): Promise<void> {
    const { keepAliveMs = 10_000 } = this.#options;
    const service = this.#loaded();
    await chatRoute({ request, response, owner, service, keepAliveMs, stopping: this.#stopping.signal });
  }

  #exchange(request: IncomingMessage, response: ServerResponse): Exchange {
    return { request, response, owner: this.#owner(request) };
  }

  #owner(request: IncomingMessage): Owner {
    const token = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1];
    const owner = token === undefined ? undefined : this.#options.owners.find(token);
    if (owner === undefined) {
      throw new ApiError(401, 'The bearer token is missing, unknown or no longer valid.', { code: 'invalid_api_key' });
    }
    return owner;
  }

  #loaded(): CompletionService {
    if (this.#service === null) {
      throw new ApiError(503, 'The model is still loading; try again in a moment.', {
        code: 'model_not_loaded',
        headers: { 'retry-after': '1' },
      });
    }
    return this.#service;
  }
}

/** A page in a browser can point its own name at 127.0.0.1; its requests then carry that name. */
function checkHostHeader(request: IncomingMessage): void {
  const host = request.headers.host ?? '';
  if (/^(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?$/i.test(host)) return;
  throw new ApiError(403, `Requests for the host '${host.slice(0, 100)}' are refused; use 127.0.0.1.`, {
    code: 'wrong_host',
  });
}

function answerUnreadable(error: Error, socket: Socket): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const body = JSON.stringify(new ApiError(400, `This is not HTTP: ${error.message}.`, { code: 'bad_http' }).body);
  socket.end(
    `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}

function listening(server: Server, listen: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.once('listening', () => {
      server.removeListener('error', reject);
      resolve();
    });
    listen();
  });
}
