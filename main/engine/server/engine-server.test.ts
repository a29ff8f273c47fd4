import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { MassError } from '../../common/base/errors.ts';
import { silentLogger } from '../../common/base/logger.ts';
import type { StoredEvent } from '../../common/domain/events.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { stubHandlers } from '../testing/stub-handlers.ts';
import { type EngineServer, startEngineServer } from './engine-server.ts';

const token = 'a-token-of-at-least-thirty-two-characters';
const listeners = new Set<(events: readonly StoredEvent[]) => void>();
const aborted: string[] = [];
let server: EngineServer;

const untilAbort = (name: string, signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    signal.addEventListener('abort', () => {
      aborted.push(name);
      reject(new MassError('cancelled', 'Cancelled.'));
    });
  });

const handlers: EngineHandlers = stubHandlers({
  'experiment.list': async () => [],
  'models.fetch': async ({ id }, { signal, progress }) => {
    progress({ label: id, done: 1, total: 2, unit: 'bytes', etaSeconds: null });
    return await untilAbort(id, signal);
  },
  'experiment.status': async () => {
    throw new MassError('not_found', 'There is none.', { cause: new Error('inner') });
  },
  'events.subscribe': async () => ({ lastSeq: 4 }),
});

beforeEach(async () => {
  aborted.length = 0;
  server = await startEngineServer({
    handlers,
    onEvents: (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    token,
    port: 0,
    logger: silentLogger,
    maxMessageBytes: 10_000,
  });
});
afterEach(() => server.close());

interface Client {
  readonly socket: WebSocket;
  send(message: unknown): void;
  next(): Promise<unknown>;
  closed: Promise<number>;
}

async function open(headers: Record<string, string> = {}): Promise<Client> {
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}`, {
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
  const messages: unknown[] = [];
  let wake: () => void = () => undefined;
  socket.on('message', (data) => {
    messages.push(JSON.parse(String(data)));
    wake();
  });
  const closed = new Promise<number>((resolve) => socket.once('close', resolve));
  await new Promise<void>((resolve, reject) => {
    socket.once('open', () => resolve());
    socket.once('error', reject);
  });
  const next = async (): Promise<unknown> => {
    while (messages.length === 0) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return messages.shift();
  };
  return { socket, send: (message) => socket.send(JSON.stringify(message)), next, closed };
}

describe('who may enter', () => {
  it.each([
    ['a wrong token', { authorization: 'Bearer wrong' }, 401],
    ['no token', { authorization: '' }, 401],
    ['a foreign Host', { host: 'evil.example:80' }, 403],
    ['a foreign Origin', { origin: 'http://evil.example' }, 403],
  ])('refuses %s', async (_, headers, status) => {
    await expect(open(headers)).rejects.toThrow(`Unexpected server response: ${status}`);
  });

  it('admits its own origin', async () => {
    const client = await open({ origin: `http://127.0.0.1:${server.port}` });
    client.send({ kind: 'request', id: 1, method: 'experiment.list', params: {} });
    expect(await client.next()).toEqual({ kind: 'reply', id: 1, result: [] });
  });

  it('answers plain HTTP with 401 without and 426 with the token', async () => {
    const url = `http://127.0.0.1:${server.port}/`;
    expect((await fetch(url)).status).toBe(401);
    expect((await fetch(url, { headers: { authorization: `Bearer ${token}` } })).status).toBe(426);
  });
});

describe('requests', () => {
  it('gives errors as data', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'experiment.status', params: { name: 'x' } });
    expect(await client.next()).toEqual({
      kind: 'error',
      id: 1,
      error: { code: 'not_found', message: 'There is none.', cause: 'inner' },
    });
    client.send({ kind: 'request', id: 2, method: 'toString', params: {} });
    expect(await client.next()).toMatchObject({ id: 2, error: { code: 'not_found' } });
    client.send({ kind: 'request', id: 3, method: 'experiment.status', params: { name: '' } });
    expect(await client.next()).toMatchObject({ id: 3, error: { code: 'invalid_input' } });
  });

  it('pushes progress and aborts on cancel', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 5, method: 'models.fetch', params: { id: 'm' } });
    const progress = { label: 'm', done: 1, total: 2, unit: 'bytes', etaSeconds: null };
    expect(await client.next()).toEqual({ kind: 'push', topic: 'progress', payload: { id: 5, progress } });
    client.send({ kind: 'cancel', id: 5 });
    expect(await client.next()).toMatchObject({ kind: 'error', id: 5, error: { code: 'cancelled' } });
    expect(aborted).toEqual(['m']);
  });

  it('aborts what is in flight when the client goes', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'models.fetch', params: { id: 'gone' } });
    await client.next();
    client.socket.terminate();
    await expect.poll(() => aborted).toEqual(['gone']);
  });
});

describe('event pushes', () => {
  const event = (seq: number): StoredEvent => ({
    seq,
    at: 0,
    event: { type: 'notice', experimentId: null, level: 'info', code: 'c', message: 'm' },
  });
  const emit = (...events: StoredEvent[]): void => {
    for (const listener of listeners) listener(events);
  };

  it('come in one batch after subscribing, and end with the connection', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'events.subscribe', params: {} });
    expect(await client.next()).toEqual({ kind: 'reply', id: 1, result: { lastSeq: 4 } });
    emit(event(5));
    emit(event(6));
    expect(await client.next()).toEqual({
      kind: 'push',
      topic: 'events',
      payload: { lastSeq: 6, events: [event(5), event(6)] },
    });
    client.socket.close();
    await expect.poll(() => listeners.size).toBe(0);
  });

  it('carry only the last seq to a client that does not keep up, which misses nothing', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'events.subscribe', params: {} });
    await client.next();
    client.socket.pause();
    const long = (seq: number): StoredEvent => ({
      ...event(seq),
      event: { type: 'notice', experimentId: null, level: 'info', code: 'c', message: 'x'.repeat(400_000) },
    });
    const last = 60;
    for (let seq = 1; seq <= last; seq++) {
      emit(long(seq));
      await new Promise((resolve) => setTimeout(resolve, 25)); // longer than a batch is gathered for
    }
    client.socket.resume();
    let seen = 0;
    let bare = 0;
    while (seen < last) {
      const { payload } = (await client.next()) as { payload: { lastSeq: number; events?: StoredEvent[] } };
      if (payload.events === undefined) bare++;
      seen = payload.lastSeq;
    }
    expect(bare).toBeGreaterThan(0);
    emit(event(last + 1));
    expect(await client.next()).toMatchObject({ payload: { lastSeq: last + 1, events: [{ seq: last + 1 }] } });
  });

  it('carry only the last seq for one experiment', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'events.subscribe', params: { experiment: 'first' } });
    await client.next();
    emit(event(9));
    expect(await client.next()).toEqual({ kind: 'push', topic: 'events', payload: { lastSeq: 9 } });
  });
});

describe('hostile input', () => {
  it('closes on what is too long', async () => {
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'x'.repeat(20_000), params: {} });
    expect(await client.closed).toBe(1009);
  });

  it('closes on frames that are no message, and goes on serving others', async () => {
    const frame = fc.oneof(fc.string(), fc.json(), fc.uint8Array());
    await fc.assert(
      fc.asyncProperty(frame, async (data) => {
        const client = await open();
        client.socket.send(data);
        expect(await client.closed).toBe(1008);
      }),
      { numRuns: 40 },
    );
    const client = await open();
    client.send({ kind: 'request', id: 1, method: 'experiment.list', params: {} });
    expect(await client.next()).toEqual({ kind: 'reply', id: 1, result: [] });
  });
});
