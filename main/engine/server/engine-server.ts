import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { MassError } from '../../common/base/errors.ts';
import { admit } from './admission.ts';
import { type ConnectionOptions, serveConnection } from './connection.ts';

export interface EngineServerOptions extends Omit<ConnectionOptions, 'socket'> {
  readonly token: string;
  /** 0: any free port */
  readonly port: number;
  readonly maxMessageBytes?: number;
}

export interface EngineServer {
  readonly port: number;
  connections(): number;
  /** Lets queued replies out, then closes every socket within about a second. */
  close(): Promise<void>;
}

const defaultMaxMessageBytes = 8 << 20;
const closeWaitMs = 1000;
const goingAway = 1001;

/** @throws MassError `conflict` when the port is taken. */
export async function startEngineServer(options: EngineServerOptions): Promise<EngineServer> {
  const { token, ...connection } = options;
  const http = createServer({ requestTimeout: 30_000 });
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: options.maxMessageBytes ?? defaultMaxMessageBytes,
    clientTracking: true,
  });
  const port = await listen(http, options.port);

  http.on('request', (request, response) => {
    const refusal = admit(request, port, token);
    const status = refusal?.status ?? 426;
    const body = { error: refusal?.reason ?? 'This address speaks WebSocket.' };
    response.writeHead(status, { 'content-type': 'application/json', connection: 'close' }).end(JSON.stringify(body));
  });
  http.on('upgrade', (request, socket, head) => {
    socket.on('error', () => socket.destroy());
    const refusal = admit(request, port, token);
    if (refusal !== null) {
      const title = refusal.status === 401 ? 'Unauthorized' : 'Forbidden';
      socket.end(`HTTP/1.1 ${refusal.status} ${title}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    sockets.handleUpgrade(request, socket, head, (webSocket) => serveConnection({ ...connection, socket: webSocket }));
  });
  return { port, connections: () => sockets.clients.size, close: () => closeAll(http, sockets) };
}

async function listen(http: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    http.once('error', (error) =>
      reject(new MassError('conflict', `Port ${port} cannot be used; choose another.`, { cause: error })),
    );
    http.listen(port, '127.0.0.1', () => resolve());
  });
  return (http.address() as AddressInfo).port;
}

async function closeAll(http: Server, sockets: WebSocketServer): Promise<void> {
  await Promise.all([...sockets.clients].map(closeSocket));
  sockets.close();
  http.closeAllConnections();
  await new Promise<void>((resolve) => http.close(() => resolve()));
}

async function closeSocket(socket: WebSocket): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => socket.terminate(), closeWaitMs);
    socket.once('close', () => {
      clearTimeout(timer);
      resolve();
    });
    socket.close(goingAway, 'the engine ends');
  });
}
