import type { ServerResponse } from 'node:http';

export interface EventStreamOptions {
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds of silence after which a comment is sent, so that nothing on the way takes a long prefill for a dead connection. */
  readonly keepAliveMs: number;
}

/**
 * Server-sent events. The status line goes out with the first event or comment, so an error that comes earlier can still
 * have its own status.
 */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #options: EventStreamOptions;
  readonly #timer: NodeJS.Timeout;

  constructor(response: ServerResponse, options: EventStreamOptions) {
    this.#response = response;
    this.#options = options;
    this.#timer = setInterval(() => this.#write(': waiting\n\n'), options.keepAliveMs);
  }

  send(data: unknown): void {
    this.#write(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
    this.#timer.refresh();
  }

  end(): void {
    this.stop();
    this.#response.end();
  }

  /** Stops the keepalive without ending the response. */
  stop(): void {
    clearInterval(this.#timer);
  }

  #write(text: string): void {
    const response = this.#response;
    if (response.destroyed || response.writableEnded) return;
    if (!response.headersSent) {
      response.writeHead(200, {
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-cache',
        ...this.#options.headers,
      });
    }
    response.write(text);
  }
}
