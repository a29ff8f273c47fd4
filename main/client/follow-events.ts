import type { StoredEvent } from '../common/domain/events.ts';
import type { EngineConnection } from './connection.ts';

export interface FollowOptions {
  readonly experiment?: string | undefined;
  /** seq of the last event already seen */
  readonly after: number;
  readonly signal: AbortSignal;
  readonly onEvent: (event: StoredEvent) => void;
}

const pageSize = 500;

/** Every event after `after`, in order and once. @returns the seq of the last one. */
export async function readEvents(engine: EngineConnection, options: FollowOptions): Promise<number> {
  let { after } = options;
  const { experiment, signal, onEvent } = options;
  while (!signal.aborted) {
    const page = await engine.call(
      'events.since',
      { after, limit: pageSize, ...(experiment ? { experiment } : {}) },
      { signal },
    );
    for (const event of page) onEvent(event);
    after = page.at(-1)?.seq ?? after;
    if (page.length < pageSize) break;
  }
  return after;
}

/**
 * As readEvents, then those that come, until `signal` aborts. Pushes only wake it, so a dropped one loses nothing.
 * @returns the seq of the last event given to `onEvent`, from which readEvents can finish.
 */
export async function followEvents(engine: EngineConnection, options: FollowOptions): Promise<number> {
  const { experiment, signal } = options;
  let { after } = options;
  const onEvent = (event: StoredEvent): void => {
    after = event.seq;
    options.onEvent(event);
  };
  let wake: () => void = () => undefined;
  let news = true;
  const ring = (): void => {
    news = true;
    wake();
  };
  const unhear = [engine.onEvents(ring), engine.onClose(ring)];
  signal.addEventListener('abort', ring);
  try {
    await engine.call('events.subscribe', experiment ? { experiment } : {}, { signal });
    while (!signal.aborted) {
      if (news) {
        news = false;
        await readEvents(engine, { ...options, after, onEvent });
      } else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error; // aborting is how following ends
  } finally {
    signal.removeEventListener('abort', ring);
    for (const stop of unhear) stop();
  }
  return after;
}
