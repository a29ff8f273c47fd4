import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { deferred } from '../../common/base/deferred.ts';
import { createDeviceLease } from './lease.ts';
import { withDevice } from './with-device.ts';

const lease = () => createDeviceLease(() => Promise.reject(new Error('Nothing is served here.')));
const wanted = (label: string, signal = new AbortController().signal) => ({ label, signal });

it('gives the device, and gives it back when the work fails', async () => {
  const device = lease();
  await expect(withDevice(device, wanted('a'), () => Promise.resolve(device.holder()))).resolves.toBe('a');
  await expect(withDevice(device, wanted('b'), () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
  expect(device.holder()).toBeNull();
});

it.each(['aborting', 'draining'])('%s ends the wait, and what was waited for never begins', async (how) => {
  const device = lease();
  const other = deferred<void>();
  const holding = withDevice(device, wanted('long'), () => other.promise);
  const abort = new AbortController();
  let draining = false;
  let began = false;
  const claim = { label: 'late', signal: abort.signal, draining: () => draining };
  const waiting = withDevice(device, claim, async () => {
    began = true;
  });
  if (how === 'aborting') abort.abort();
  else draining = true;
  await expect(waiting).rejects.toMatchObject({ code: 'cancelled' });
  other.resolve();
  await holding;
  await expect(withDevice(device, wanted('next'), () => Promise.resolve('next'))).resolves.toBe('next');
  expect(began).toBe(false);
});

it('does not leave work that has begun', async () => {
  const device = lease();
  const abort = new AbortController();
  const work = deferred<string>();
  const begun = deferred<void>();
  const working = withDevice(device, wanted('w', abort.signal), () => {
    begun.resolve();
    return work.promise;
  });
  await begun.promise;
  abort.abort();
  await sleep(300);
  expect(device.holder()).toBe('w');
  work.resolve('done');
  await expect(working).resolves.toBe('done');
});
