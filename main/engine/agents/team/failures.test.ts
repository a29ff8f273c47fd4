import { describe, expect, it } from 'vitest';
import { MassError } from '../../../common/base/errors.ts';
import { call, memoryFiles, type PlayOptions, play, say, untilAbort, use } from './testing/episode-fixture.ts';

/** An episode that passes through every port: delegation, files, a command, reports. */
const busy: PlayOptions['script'] = ({ thread }, turn) => {
  if (!thread.endsWith(':t0'))
    return turn === 0
      ? use(call('run_command', { command: 'make' }), call('write_file', { path: 'a', content: 'b' }))
      : say('made');
  return turn === 0 ? use(call('delegate', { role: 'R', assignment: 'A' })) : say('end');
};

const settled = async (result: Promise<unknown>) => {
  const [outcome] = await Promise.allSettled([result]);
  return outcome.status === 'rejected' ? (outcome.reason as MassError) : null;
};

describe('cancellation', () => {
  it('rejects as cancelled from whichever port is open, and nothing is entered afterwards', async () => {
    const whole = play({ script: busy });
    await whole.result;
    const ports = whole.stage.log.filter((entry) => !entry.endsWith('done'));
    expect(ports.length).toBeGreaterThan(15);
    for (let at = 0; at < ports.length - 1; at++) {
      const abort = new AbortController();
      const { stage, result } = play({
        script: busy,
        signal: abort.signal,
        onPort: (_name, entry) => {
          if (entry === at) abort.abort();
        },
      });
      expect(await settled(result), `aborted in ${ports[at]} (${at})`).toMatchObject({ code: 'cancelled' });
      expect(stage.pending.size).toBe(0);
      const entered = stage.log.length;
      await new Promise((resolve) => setImmediate(resolve));
      expect(stage.log.length).toBe(entered);
      // The model and the sandbox are not asked again.
      const after = stage.log.filter((entry) => !entry.endsWith('done')).slice(at + 1);
      expect(after.filter((entry) => /^(ask|command)/.test(entry))).toEqual([]);
    }
  });

  it('before the start does nothing at all', async () => {
    const { stage, result } = play({ script: busy, signal: AbortSignal.abort() });
    expect(await settled(result)).toMatchObject({ code: 'cancelled' });
    expect(stage.log).toEqual([]);
  });

  it('interrupts an answer in flight', async () => {
    const abort = new AbortController();
    const { stage, result } = play({
      signal: abort.signal,
      script: ({ signal }) => {
        setTimeout(() => abort.abort(), 5);
        return untilAbort(signal);
      },
    });
    expect(await settled(result)).toMatchObject({ code: 'cancelled' });
    expect(stage.toolRuns).toEqual([]);
  });
});

describe('trouble of the machine', () => {
  const broken = new MassError('infrastructure', 'The endpoint is gone.');

  it('at any port rejects the episode and is never a result', async () => {
    const whole = play({ script: busy });
    await whole.result;
    const ports = whole.stage.log.filter((entry) => !entry.endsWith('done'));
    for (let at = 0; at < ports.length; at++) {
      const { stage, result } = play({
        script: busy,
        onPort: (_name, entry) => {
          if (entry === at) throw broken;
        },
      });
      expect(await settled(result), `failed in ${ports[at]} (${at})`).toBe(broken);
      expect(stage.pending.size).toBe(0);
      expect(stage.log.filter((entry) => !entry.endsWith('done'))).toHaveLength(at + 1);
    }
  });

  it.each(['ask t0', 'command', 'count'])(
    'with an error of unknown kind in %s becomes infrastructure',
    async (port) => {
      const inner = new Error('socket hang up');
      const { result } = play({
        script: (_request, turn) => (turn === 0 ? use(call('run_command', { command: 'x' })) : say('end')),
        onPort: (name) => {
          if (name === port) throw inner;
        },
      });
      const error = await settled(result);
      expect(error).toMatchObject({ code: 'infrastructure', cause: inner });
    },
  );

  it('in the workspace is not told to the model as its own mistake', async () => {
    const files = {
      ...memoryFiles(),
      write: () => Promise.reject(new MassError('infrastructure', 'The disk is full.')),
    };
    const { result } = play({ files, script: () => use(call('write_file', { path: 'a', content: 'b' })) });
    expect(await settled(result)).toMatchObject({ code: 'infrastructure', message: 'The disk is full.' });
  });
});
