import { describe, expect, it } from 'vitest';
import { turnSeed } from '../../../common/domain/seeds.ts';
import { ATTEMPT, call, ended, HOST_WORKSPACE, memoryFiles, play, say, use } from './testing/episode-fixture.ts';

const isWorker = (thread: string) => !thread.endsWith(':t0');

describe('delegation', () => {
  it('hands an assignment to a worker and its report back, in one transcript each', async () => {
    const delegation = call('delegate', { role: 'Curator', assignment: 'Write cohort.csv and report its rows.' });
    const writing = call('write_file', { path: 'cohort.csv', content: 'a\n1\n' });
    const files = memoryFiles();
    const { stage, result } = play({
      files,
      script: ({ thread }, turn) => {
        if (isWorker(thread)) return turn === 0 ? use(writing) : say('cohort.csv has 1 row.');
        return turn === 0 ? use(delegation) : say('Done: cohort.csv.');
      },
    });
    expect(await result).toMatchObject({
      outcome: 'completed',
      haltReason: null,
      finalReport: 'Done: cohort.csv.',
      turns: 4,
      delegations: 1,
      toolCalls: 2,
      lastToolCalls: [
        { thread: 'Curator', name: 'write_file', result: 'Wrote cohort.csv.' },
        { thread: 'orchestrator', name: 'delegate', result: 'cohort.csv has 1 row.' },
      ],
    });
    expect(files.contents.get('cohort.csv')).toBe('a\n1\n');
    expect(stage.requests.map(({ thread }) => thread)).toEqual(['t0', 't1', 't1', 't0'].map((t) => `${ATTEMPT}:${t}`));
    expect(stage.requests[3]?.messages.slice(1)).toEqual([
      { role: 'user', content: 'Measure the fall of an apple.' },
      use(delegation),
      { role: 'tool', toolCallId: delegation.id, content: 'cohort.csv has 1 row.' },
    ]);
    expect(stage.requests[2]?.messages.slice(1)).toEqual([
      { role: 'user', content: 'Role: Curator\n\nWrite cohort.csv and report its rows.' },
      use(writing),
      { role: 'tool', toolCallId: writing.id, content: 'Wrote cohort.csv.' },
    ]);
    expect(stage.threads[1]).toEqual({
      threadId: `${ATTEMPT}:t1`,
      role: 'worker',
      name: 'Curator',
      parentThreadId: `${ATTEMPT}:t0`,
      parentCallId: delegation.id,
      assignment: 'Write cohort.csv and report its rows.',
    });
    expect(stage.endings).toEqual([
      ['t1', 'completed'],
      ['t0', 'completed'],
    ]);
  });

  it('keeps the prompt and the words of the orchestrator from workers, and delegation too', async () => {
    const { stage, result } = play({
      script: ({ thread }, turn) => {
        if (isWorker(thread)) return say('ok');
        return turn === 0
          ? say('Orchestrator thoughts.', { toolCalls: [call('delegate', { role: 'R', assignment: 'A' })] })
          : say('end');
      },
    });
    await result;
    const seen = JSON.stringify(stage.requests.filter(({ thread }) => isWorker(thread)));
    expect(seen).not.toContain('apple');
    expect(seen).not.toContain('Orchestrator thoughts');
    expect(seen).not.toContain('delegate');
  });

  it('runs the delegations of one turn one after another, in their order', async () => {
    const { stage, result } = play({
      script: ({ thread }, turn) => {
        if (isWorker(thread)) return say(`report of ${thread}`);
        return turn === 0
          ? use(
              call('delegate', { role: 'First', assignment: '1' }),
              call('delegate', { role: 'Second', assignment: '2' }),
            )
          : say('end');
      },
    });
    await result;
    const order = stage.log.filter((entry) => /^(start|ask|end|ran) (t[12]|delegate)$/.test(entry));
    expect(order).toEqual([
      'start t1',
      'ask t1',
      'end t1',
      'ran delegate',
      'start t2',
      'ask t2',
      'end t2',
      'ran delegate',
    ]);
  });

  it('refuses delegations over the limit and lets the orchestrator go on', async () => {
    const { stage, result } = play({
      executor: { maxDelegations: 1 },
      script: ({ thread }, turn) => {
        if (isWorker(thread)) return say('ok');
        return turn < 2 ? use(call('delegate', { role: 'R', assignment: `part ${turn}` })) : say('end');
      },
    });
    expect(await result).toMatchObject({ outcome: 'completed', delegations: 1 });
    expect(stage.threads).toHaveLength(2);
    expect(stage.toolRuns[1]).toMatchObject({ failed: true, result: expect.stringContaining('all 1 delegations') });
  });
});

describe('what is recorded', () => {
  it('is durable before the model is asked again', async () => {
    const { stage, result } = play({
      script: (_request, turn) => (turn === 0 ? use(call('run_command', { command: 'ls' })) : say('end')),
    });
    await result;
    expect(stage.log.filter((entry) => !entry.startsWith('count'))).toEqual([
      ...['start t0', 'start t0 done', 'ask t0', 'ask t0 done', 'command', 'command done'],
      ...['ran run_command', 'ran run_command done', 'ask t0', 'ask t0 done', 'end t0', 'end t0 done'],
    ]);
  });

  it('bounds the newest tool calls kept as evidence', async () => {
    const { result } = play({
      script: (_request, turn) =>
        turn < 15 ? use(call('write_file', { path: `f${turn}`, content: 'x'.repeat(3000) })) : say('end'),
    });
    const { lastToolCalls, toolCalls } = await result;
    expect(toolCalls).toBe(15);
    expect(lastToolCalls.map(({ result: shown }) => shown)).toEqual(
      Array.from({ length: 12 }, (_, i) => `Wrote f${i + 3}.`),
    );
    expect(Math.max(...lastToolCalls.map(({ arguments: text }) => text.length))).toBeLessThan(520);
  });
});

describe('seeds', () => {
  const seedsOf = async (seedPolicy: 'turn' | 'episode') => {
    const { stage, result } = play({
      seedPolicy,
      script: ({ thread }, turn) =>
        !isWorker(thread) && turn === 0 ? use(call('delegate', { role: 'R', assignment: 'A' })) : say('end'),
    });
    await result;
    return stage.requests.map(({ sampling }) => sampling.seed);
  };

  it("are the episode's for every turn under `episode`", async () => {
    expect(await seedsOf('episode')).toEqual([450_001, 450_001, 450_001]);
  });

  it('differ by thread and turn under `turn`, and do not depend on the attempt', async () => {
    const seed = (thread: string, turn: number) => turnSeed({ episodeSeed: 450_001, thread, turn, policy: 'turn' });
    const seeds = await seedsOf('turn');
    expect(seeds).toEqual([seed('t0', 0), seed('t1', 0), seed('t0', 1)]);
    expect(new Set(seeds).size).toBe(3);
  });
});

describe('prompts', () => {
  it('are named with their hashes for records', async () => {
    const { createTeamRuntime } = await import('./team-runtime.ts');
    const { promptHashes } = createTeamRuntime({ createFiles: memoryFiles });
    expect(Object.keys(promptHashes)).toContain('orchestrator.v1');
    for (const hash of Object.values(promptHashes)) expect(hash).toMatch(/^[0-9a-f]{64}$/);
  });

  it('stay under 900 tokens with the tools, at three and a half characters a token', async () => {
    const { stage, result } = play({
      script: ({ thread }, turn) =>
        !isWorker(thread) && turn === 0 ? use(call('delegate', { role: 'R', assignment: 'A' })) : say('end'),
    });
    await result;
    for (const { messages, tools } of stage.requests.slice(0, 2))
      expect((messages[0]?.content.length ?? 0) + JSON.stringify(tools).length).toBeLessThan(900 * 3.5);
  });

  it('hold no path of the host, whatever a command prints', async () => {
    const { stage, result } = play({
      command: ({ workspace }) => ended(`cwd ${workspace}/data\n`),
      script: (_request, turn) => (turn === 0 ? use(call('run_command', { command: 'pwd' })) : say('end')),
    });
    await result;
    expect(stage.commands[0]?.workspace).toBe(HOST_WORKSPACE);
    expect(JSON.stringify(stage.requests)).not.toContain('secret-folder');
    expect(stage.requests[1]?.messages.at(-1)?.content).toBe('exit code 0\ncwd /workspace/data');
    expect(stage.toolRuns[0]?.result).toContain(HOST_WORKSPACE);
  });
});
