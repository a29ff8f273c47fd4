import { WebSocket } from 'ws';
import { cancelled, fromErrorData, MassError } from '../common/base/errors.ts';
import {
  engineMethods,
  type MethodName,
  type ParamsInputOf,
  type Progress,
  type ResultOf,
} from '../common/protocol/engine.ts';
import type { EngineFile } from '../common/protocol/engine-file.ts';
import { type ClientMessage, ServerMessage } from '../common/protocol/envelope.ts';
import { EventsPush, ProgressPush } from '../common/protocol/pushes.ts';

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

export interface EngineConnection {
  /** @throws MassError as the engine gave it; `infrastructure` when the connection ends first. */
  call<M extends MethodName>(method: M, params: ParamsInputOf<M>, options?: CallOptions): Promise<ResultOf<M>>;
  /** Hears `events` pushes, which `events.subscribe` starts. Returns how to stop hearing them. */
  onEvents(listener: (push: EventsPush) => void): () => void;
  onClose(listener: () => void): () => void;
  close(): void;
}

interface Pending {
  readonly method: MethodName;
  readonly onProgress: CallOptions['onProgress'];
  resolve(result: unknown): void;
  reject(error: MassError): void;
}

const handshakeMs = 10_000;

/** Opens the WebSocket of a listening engine. @throws MassError `infrastructure` when nobody answers. */
export async function openConnection(file: Pick<EngineFile, 'port' | 'token'>): Promise<EngineConnection> {
  const socket = new WebSocket(`ws://127.0.0.1:${file.port}`, {
    headers: { authorization: `Bearer ${file.token}` },
    handshakeTimeout: handshakeMs,
    maxPayload: 64 << 20,
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('open', () => resolve());
    socket.once('error', (error) =>
      reject(
        new MassError('infrastructure', 'The engine does not answer; try again, or end it and retry.', {
          cause: error,
        }),
      ),
    );
  });
  return attach(socket);
}

function attach(socket: WebSocket): EngineConnection {
  const pending = new Map<number, Pending>();
  const eventListeners = new Set<(push: EventsPush) => void>();
  const closeListeners = new Set<() => void>();
  let nextId = 1;
  const send = (message: ClientMessage): void => socket.send(JSON.stringify(message));

  socket.on('message', (data) => {
    try {
      receive(ServerMessage.parse(JSON.parse(String(data))), pending, eventListeners);
    } catch {
      socket.close(1008, 'not a message of the protocol'); // pending calls reject when it closes
    }
  });
  socket.on('error', () => socket.terminate()); // 'close' follows and rejects what is pending
  socket.on('close', () => {
    for (const call of pending.values())
      call.reject(new MassError('infrastructure', 'The connection to the engine ended; its log says why.'));
    pending.clear();
    for (const listener of closeListeners) listener();
  });

  return {
    call: async (method, params, options = {}) => {
      const { signal, onProgress } = options;
      if (signal?.aborted) throw cancelled();
      if (socket.readyState !== socket.OPEN)
        throw new MassError('infrastructure', 'The connection to the engine has ended; start the command again.');
      const id = nextId++;
      const abort = (): void => {
        if (socket.readyState === socket.OPEN) send({ kind: 'cancel', id });
        pending.get(id)?.reject(cancelled());
        pending.delete(id);
      };
      signal?.addEventListener('abort', abort, { once: true });
      try {
        const result = await new Promise<unknown>((resolve, reject) => {
          pending.set(id, { method, onProgress, resolve, reject });
          send({ kind: 'request', id, method, params });
        });
        return parseResult(method, result);
      } finally {
        signal?.removeEventListener('abort', abort);
      }
    },
    onEvents: (listener) => added(eventListeners, listener),
    onClose: (listener) => added(closeListeners, listener),
    close: () => socket.close(),
  };
}

function added<T>(set: Set<T>, item: T): () => void {
  set.add(item);
  return () => void set.delete(item);
}

function receive(
  message: ServerMessage,
  pending: Map<number, Pending>,
  eventListeners: ReadonlySet<(push: EventsPush) => void>,
): void {
  if (message.kind === 'push') {
    if (message.topic === 'events') {
      const push = EventsPush.parse(message.payload);
      for (const listener of eventListeners) listener(push);
    } else {
      const { id, progress } = ProgressPush.parse(message.payload);
      pending.get(id)?.onProgress?.(progress);
    }
    return;
  }
  const call = pending.get(message.id);
  pending.delete(message.id);
  if (message.kind === 'reply') call?.resolve(message.result);
  else call?.reject(fromErrorData(message.error));
}

function parseResult<M extends MethodName>(method: M, result: unknown): ResultOf<M> {
  const parsed = engineMethods[method].result.safeParse(result);
  if (!parsed.success) {
    throw new MassError('internal', `The engine's answer to ${method} is not understood; use one version of both.`, {
      cause: parsed.error,
    });
  }
  return parsed.data as ResultOf<M>; // the schema of this very method; TypeScript loses it in the computed key
}
