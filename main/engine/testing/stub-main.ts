import { MassError } from '../../common/base/errors.ts';
import type { StoredEvent } from '../../common/domain/events.ts';
import { runEngineProcess } from '../process/run-engine.ts';
import { stubHandlers } from './stub-handlers.ts';

/**
 * An engine process whose engine is a stub, for tests of the client and the command line. MASS_STUB chooses how it
 * behaves: "no-start" fails while opening, "gate" and "forever" say how its one run ends, "idle" ends soon without a client.
 */
const behaviour = process.env['MASS_STUB'] ?? '';
const events: StoredEvent[] = [];
const listeners = new Set<(events: readonly StoredEvent[]) => void>();
let endRun: () => void = () => undefined;
const runEnded = new Promise<void>((resolve) => {
  endRun = resolve;
});

function append(event: StoredEvent['event']): void {
  const stored = { seq: events.length + 1, at: Date.now(), event };
  events.push(stored);
  for (const listener of listeners) listener([stored]);
}

await runEngineProcess(process.argv.slice(2), {
  version: '0.0.0-stub',
  ...(behaviour === 'idle' ? { idleMs: 400 } : {}),
  createEngine: async ({ dataFolder, version }) => {
    if (behaviour === 'no-start') {
      throw new MassError('prerequisite', 'The stub cannot start; unset MASS_STUB.', { cause: new Error('told so') });
    }
    return {
      handlers: stubHandlers({
        'engine.info': async () => ({
          pid: process.pid,
          version,
          dataFolder,
          startedAt: 0,
          lastSeq: events.length,
          lease: null,
          activeRuns: [],
        }),
        'engine.stop': async ({ mode }) => {
          if (mode !== 'preview') {
            append({ type: 'notice', experimentId: null, level: 'info', code: 'stop', message: `stopped ${mode}` });
            endRun();
          }
          const lostIfNow = '2 episodes in flight with 300 generated tokens would be lost and run again.';
          return { inFlight: ['at_1', 'at_2'], lostIfNow, stopped: mode !== 'preview' };
        },
        'experiment.list': async () => [{ name: 'first', state: 'new', createdAt: 0, model: 'stub' }],
        'experiment.status': async ({ name }) => {
          throw new MassError('not_found', `There is no experiment "${name}".`);
        },
        'events.since': async ({ after, limit }) => events.filter((event) => event.seq > after).slice(0, limit),
        'events.subscribe': async () => ({ lastSeq: events.length }),
        'run.start': async ({ stages }) => {
          for (const stage of stages) {
            append({ type: 'stage.started', experimentId: 'ex_1', cycle: 1, stage, runId: 'run_1' });
          }
          return { runId: 'run_1' };
        },
        'run.wait': async () => {
          if (behaviour === 'forever') await runEnded;
          const gate = { code: 'gate', message: 'A person must look.' };
          return behaviour === 'gate'
            ? { state: 'stopped', message: 'A person must look.', error: gate }
            : { state: 'done', message: 'All stages are done.', error: null };
        },
      }),
      onEvents: (listener) => {
        listeners.add(listener);
        return () => void listeners.delete(listener);
      },
      shutdown: async () => endRun(),
      idle: () => true,
    };
  },
});
