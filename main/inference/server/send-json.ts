import type { ServerResponse } from 'node:http';
import type { ApiError } from './api-error.ts';

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.destroyed || response.headersSent) return;
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': bytes.length, ...headers });
  response.end(bytes);
}

export function sendError(response: ServerResponse, error: ApiError): void {
  sendJson(response, error.status, error.body, error.headers);
}
