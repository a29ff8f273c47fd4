import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

/** Why a request is refused; null when it may enter. */
export type Refusal = { readonly status: 401 | 403; readonly reason: string } | null;

/**
 * Host and Origin keep web pages out (DNS rebinding, cross-site WebSocket), the token keeps other users of the
 * machine out. Programs send no Origin.
 */
export function admit(request: IncomingMessage, port: number, token: string): Refusal {
  const hosts = [`127.0.0.1:${port}`, `localhost:${port}`];
  if (!hosts.includes(request.headers.host ?? '')) return { status: 403, reason: 'Unknown Host.' };
  const { origin } = request.headers;
  if (origin !== undefined && !hosts.some((host) => origin === `http://${host}`))
    return { status: 403, reason: 'Unknown Origin.' };
  const given = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
  return sameText(given, token) ? null : { status: 401, reason: 'Wrong or missing token.' };
}

/** Hashes have one length, so that neither content nor length shows in the time it takes. */
const sameText = (a: string, b: string): boolean =>
  timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest());
