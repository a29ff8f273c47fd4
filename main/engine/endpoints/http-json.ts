import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { cancelled } from '../../common/base/errors.ts';

export interface JsonPost {
  readonly agent: Agent;
  readonly port: number;
  readonly path: string;
  readonly token: string;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

export interface JsonAnswer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: unknown;
}

/** No answer, or not a whole one: the other side may be gone. */
export class ConnectionLost extends Error {
  constructor(cause: unknown) {
    super(`The connection to the model endpoint broke: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
    this.name = 'ConnectionLost';
  }
}

/** One connection per request in flight, kept for the next; no idle time-out, since a completion may take an hour. */
export const createAgent = (): Agent => new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });

/** Posts JSON to 127.0.0.1 and reads the JSON answer, whatever its status. Errors: ConnectionLost; cancelled by the signal. */
export async function postJson(post: JsonPost): Promise<JsonAnswer> {
  const { signal } = post;
  if (signal?.aborted) throw cancelled();
  try {
    const response = await send(post);
    const chunks: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    return { status: response.statusCode ?? 0, headers: response.headers, body };
  } catch (error) {
    if (signal?.aborted) throw cancelled();
    throw new ConnectionLost(error);
  }
}

function send(post: JsonPost): Promise<IncomingMessage> {
  const bytes = Buffer.from(JSON.stringify(post.body));
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        host: '127.0.0.1',
        port: post.port,
        path: post.path,
        method: 'POST',
        agent: post.agent,
        headers: {
          'content-type': 'application/json',
          'content-length': bytes.length,
          authorization: `Bearer ${post.token}`,
          ...post.headers,
        },
        ...(post.signal === undefined ? {} : { signal: post.signal }),
      },
      resolve,
    );
    request.once('error', reject);
    request.end(bytes);
  });
}
