import { deferred } from '../../common/base/deferred.ts';
import type { AsyncDisposable } from '../../common/base/disposable.ts';
import { cancelled, MassError } from '../../common/base/errors.ts';
import type { EndpointProvider } from '../endpoints/endpoint.ts';

/** A model in memory that answers. Disposing ends its process and resolves once its memory is free. */
export interface Serving extends AsyncDisposable {
  readonly endpoints: EndpointProvider;
}

/** What may be served: targets with the same key share one serving. */
export interface ServeTarget {
  readonly key: string;
  /** for people: `serve L0 (smollm2) for "demo"` */
  readonly label: string;
}

export interface DeviceLease<T extends ServeTarget> extends AsyncDisposable {
  /** Starts serving now, so that a model that cannot be loaded refuses a run before its first unit. */
  prepare(target: T): Promise<void>;
  /** Opening an endpoint waits for the device, and keeps it until it is closed. */
  endpointsOf(target: T): EndpointProvider;
  /** Ends serving, waits until its memory is free, and keeps the device for `work`. `label` names the holder. */
  exclusive<R>(label: string, work: () => Promise<R>): Promise<R>;
  /** Ends serving unless somebody is using it. */
  release(): Promise<void>;
  /** Who holds the device; null when it is free. */
  holder(): string | null;
}

/** A wish for the device: to use what `target` serves, or (null) to have it alone. */
interface Claim<T> {
  readonly target: T | null;
  readonly label: string;
  readonly granted: ReturnType<typeof deferred<Serving | null>>;
}

/**
 * One device, one use at a time: serving a generation, training or exporting. Claims are granted in the order they
 * came, except that claims on what is being served already are granted together. The engine owns one lease.
 */
export function createDeviceLease<T extends ServeTarget>(start: (target: T) => Promise<Serving>): DeviceLease<T> {
  const waiting: Claim<T>[] = [];
  let serving: { readonly target: T; readonly serving: Serving } | null = null;
  let alone: string | null = null;
  let users = 0;
  let turning: Promise<void> | null = null;
  let disposed = false;

  const stopServing = async (): Promise<void> => {
    const ended = serving;
    serving = null;
    await ended?.serving.dispose();
  };

  /** Grants what can be granted at the head of the queue, one claim at a time. */
  const turn = async (): Promise<void> => {
    for (let claim = waiting[0]; claim && alone === null && !disposed; claim = waiting[0]) {
      const { target, label, granted } = claim;
      const served = target !== null && serving?.target.key === target.key;
      if (!served && users > 0) return;
      waiting.shift();
      try {
        if (!served) await stopServing();
        if (target === null) alone = label;
        else {
          serving ??= { target, serving: await start(target) };
          users++;
        }
        granted.resolve(serving?.serving ?? null);
      } catch (error) {
        granted.reject(error);
      }
    }
  };
  const pump = (): void => {
    turning ??= turn().finally(() => {
      turning = null;
      if (waiting.length > 0 && alone === null && users === 0 && !disposed) pump();
    });
  };
  const claim = (target: T | null, label: string): Promise<Serving | null> => {
    if (disposed) return Promise.reject(cancelled('The engine is stopping.'));
    const granted = deferred<Serving | null>();
    waiting.push({ target, label, granted });
    pump();
    return granted.promise;
  };
  const leave = (): void => {
    users--;
    pump();
  };

  return {
    async prepare(target) {
      await claim(target, target.label);
      leave();
    },
    endpointsOf: (target) => ({
      async open(owner) {
        const granted = await claim(target, target.label);
        if (!granted) throw new MassError('internal', 'A serving claim was granted without a model.');
        let closed = false;
        const closeOnce = (): void => {
          if (!closed) leave();
          closed = true;
        };
        try {
          const endpoint = await granted.endpoints.open(owner);
          const close = endpoint.close.bind(endpoint);
          endpoint.close = () => close().finally(closeOnce);
          return endpoint;
        } catch (error) {
          closeOnce();
          throw error;
        }
      },
    }),
    async exclusive(label, work) {
      await claim(null, label);
      try {
        return await work();
      } finally {
        alone = null;
        pump();
      }
    },
    async release() {
      await turning;
      if (users === 0 && waiting.length === 0) await stopServing();
    },
    holder: () => alone ?? serving?.target.label ?? null,
    async dispose() {
      disposed = true;
      for (const { granted } of waiting.splice(0)) granted.reject(cancelled('The engine is stopping.'));
      await turning;
      await stopServing();
    },
  };
}
