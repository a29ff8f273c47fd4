import type { WebSocket } from 'ws';
import { MassError, toErrorData } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { StoredEvent } from '../../common/domain/events.ts';
import { parseWith } from '../../common/domain/parse-with.ts';
import { engineMethods, type MethodName } from '../../common/protocol/engine.ts';
import { ClientMessage, type ServerMessage } from '../../common/protocol/envelope.ts';
import type { EventsPush } from '../../common/protocol/pushes.ts';
import type { EngineHandlers, HandlerContext } from '../../node/engine-handlers.ts';

/** Bytes waiting in a socket above which event pushes carry only the last seq. */
const slowClientBytes = 1 << 20;
const mostInFlight = 256;
const policyViolation = 1008;
const batchMs = 20;

export interface ConnectionOptions {
  readonly socket: WebSocket;
  readonly handlers: EngineHandlers;
  readonly onEvents: (listener: (events: readonly StoredEvent[]) => void) => () => void;
  readonly logger: Logger;
}

/** Serves one client until its socket closes; then every request in flight is aborted. */
export function serveConnection({ socket, handlers, onEvents, logger }: ConnectionOptions): void {
  const inFlight = new Map<number, AbortController>();
  let stopEvents: (() => void) | null = null;

  const send = (message: ServerMessage): void => {
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message));
  };

  const answer = async (id: number, method: string, params: unknown): Promise<void> => {
    const controller = new AbortController();
    inFlight.set(id, controller);
    const { signal } = controller;
    try {
      const result = await callHandler(
        handlers,
        { method, params },
        {
          signal,
          progress: (progress) => send({ kind: 'push', topic: 'progress', payload: { id, progress } }),
        },
      );
      if (method === 'events.subscribe' && !signal.aborted) {
        stopEvents?.();
        const filtered = engineMethods['events.subscribe'].params.parse(params).experiment !== undefined;
        stopEvents = pushEvents({ socket, onEvents, send, filtered });
      }
      send({ kind: 'reply', id, result });
    } catch (error) {
      const data = toErrorData(error);
      if (data.code === 'internal') logger.log('error', `${method} failed.`, { error: data });
      send({ kind: 'error', id, error: data });
    } finally {
      inFlight.delete(id);
    }
  };

  socket.on('message', (data, isBinary) => {
    const message = isBinary ? null : parseMessage(String(data));
    if (message === null) return socket.close(policyViolation, 'not a message of the protocol');
    if (message.kind === 'cancel') return inFlight.get(message.id)?.abort();
    if (inFlight.has(message.id)) return socket.close(policyViolation, 'request id in use');
    if (inFlight.size >= mostInFlight) return socket.close(policyViolation, 'too many requests in flight');
    void answer(message.id, message.method, message.params);
  });
  socket.on('close', () => {
    stopEvents?.();
    for (const controller of inFlight.values()) controller.abort();
  });
  socket.on('error', (error) => logger.log('warn', 'A client broke the connection.', { error: error.message }));
}

function parseMessage(text: string): ClientMessage | null {
  try {
    return ClientMessage.parse(JSON.parse(text));
  } catch {
    return null; // outside data: the caller closes the socket and says why
  }
}

async function callHandler(
  handlers: EngineHandlers,
  request: { method: string; params: unknown },
  context: HandlerContext,
): Promise<unknown> {
  if (!isMethod(request.method)) throw new MassError('not_found', `The engine has no method "${request.method}".`);
  const params = parseWith(engineMethods[request.method].params, request.params, `The request ${request.method}`);
  // The map pairs each handler with its own parameters; TypeScript cannot follow that through a computed key.
  const handler = handlers[request.method] as (params: unknown, context: HandlerContext) => Promise<unknown>;
  return await handler(params, context);
}

const isMethod = (name: string): name is MethodName => Object.hasOwn(engineMethods, name);

interface PushOptions {
  readonly socket: WebSocket;
  readonly onEvents: ConnectionOptions['onEvents'];
  readonly send: (message: ServerMessage) => void;
  readonly filtered: boolean;
}

/** Gathers events for a moment and pushes them as one message. */
function pushEvents({ socket, onEvents, send, filtered }: PushOptions): () => void {
  let batch: StoredEvent[] = [];
  let timer: NodeJS.Timeout | null = null;
  const flush = (): void => {
    timer = null;
    const lastSeq = batch.at(-1)?.seq;
    if (lastSeq === undefined) return;
    const bare = filtered || socket.bufferedAmount > slowClientBytes;
    const payload: EventsPush = bare ? { lastSeq } : { lastSeq, events: batch };
    batch = [];
    send({ kind: 'push', topic: 'events', payload });
  };
  const unsubscribe = onEvents((events) => {
    batch.push(...events);
    timer ??= setTimeout(flush, batchMs);
  });
  return () => {
    unsubscribe();
    if (timer !== null) clearTimeout(timer);
  };
}
