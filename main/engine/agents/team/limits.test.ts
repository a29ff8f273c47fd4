import { describe, expect, it } from 'vitest';
import { MassError } from '../../../common/base/errors.ts';
import { call, ended, play, type Script, say, untilAbort, use } from './testing/episode-fixture.ts';

const isWorker = (thread: string) => !thread.endsWith(':t0');
const delegateOnce =
  (worker: Script): Script =>
  (request, turn) => {
    if (isWorker(request.thread)) return worker(request, turn);
    return turn === 0 ? use(call('delegate', { role: 'R', assignment: 'A' })) : say('end');
  };
const write = (turn: number) => use(call('write_file', { path: `f${turn}.txt`, content: `${turn}` }));

describe('turn limit', () => {
  it('halts the orchestrator under `halt`', async () => {
    const { stage, result } = play({ executor: { orchestratorTurns: 3 }, script: (_request, turn) => write(turn) });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'turn_limit', turns: 3, toolCalls: 3 });
    expect(stage.endings).toEqual([['t0', 'turn_limit']]);
  });

  it('asks once for a report, without tools, under `wrap-up`', async () => {
    const { stage, result } = play({
      executor: { orchestratorTurns: 2, onTurnLimit: 'wrap-up' },
      script: ({ toolChoice }, turn) => (toolChoice === 'none' ? say('What I have.') : write(turn)),
    });
    expect(await result).toMatchObject({
      outcome: 'completed',
      finalReport: 'What I have.',
      turns: 3,
      ending: expect.stringContaining('when asked'),
    });
    expect(stage.requests[2]?.messages.at(-1)).toMatchObject({ role: 'user' });
    expect(stage.endings).toEqual([['t0', 'wrapped_up']]);
  });

  it('halts when the wrap-up is blank: there is no report to judge', async () => {
    const { result } = play({
      executor: { orchestratorTurns: 1, onTurnLimit: 'wrap-up' },
      script: ({ toolChoice }, turn) => (toolChoice === 'none' ? say('  ') : write(turn)),
    });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'turn_limit' });
  });

  it('always asks a worker for its report', async () => {
    const { stage, result } = play({
      executor: { workerTurns: 2, onTurnLimit: 'halt' },
      script: delegateOnce(({ toolChoice }, turn) => (toolChoice === 'none' ? say('Half done.') : write(turn))),
    });
    expect(await result).toMatchObject({ outcome: 'completed' });
    expect(stage.toolRuns.at(-1)).toMatchObject({ name: 'delegate', result: 'Half done.', failed: false });
  });
});

describe('token limit', () => {
  it('bounds each turn by what is left and halts when nothing is', async () => {
    const { stage, result } = play({
      executor: { episodeTokens: 1500 },
      script: (_request, turn) => ({ ...write(turn), tokens: turn === 0 ? 1000 : 500 }),
    });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'token_limit', generatedTokens: 1500 });
    expect(stage.requests.map(({ sampling }) => sampling.maxTokens)).toEqual([1024, 500]);
    expect(stage.toolRuns).toHaveLength(2);
  });

  it('holds for the whole team: a worker that spends it ends the episode', async () => {
    const { stage, result } = play({
      executor: { episodeTokens: 1100 },
      script: delegateOnce((_request, turn) => ({ ...write(turn), tokens: 1024 })),
    });
    expect(await result).toMatchObject({ haltReason: 'token_limit', delegations: 1 });
    expect(stage.endings).toEqual([
      ['t1', 'token_limit'],
      ['t0', 'token_limit'],
    ]);
  });
});

describe('wall limit', () => {
  it('aborts the answer in flight', async () => {
    const { stage, result } = play({
      executor: { wallSeconds: 0.05 },
      script: ({ signal }) => untilAbort(signal),
    });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'wall_limit', turns: 0 });
    expect(stage.pending.size).toBe(0);
  });

  it("aborts a worker's command and closes both threads", async () => {
    const { stage, result } = play({
      executor: { wallSeconds: 0.05, commandSeconds: 1000 },
      command: ({ signal }) => untilAbort(signal),
      script: delegateOnce(() => use(call('run_command', { command: 'sleep 100' }))),
    });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'wall_limit' });
    expect(stage.commands[0]?.wallSeconds).toBeLessThanOrEqual(1);
    expect(stage.endings).toEqual([
      ['t1', 'wall_limit'],
      ['t0', 'wall_limit'],
    ]);
  });

  it('keeps what a killed command printed as evidence', async () => {
    const { stage, result } = play({
      executor: { wallSeconds: 0.05 },
      command: ({ signal }) =>
        untilAbort(signal).catch(() => ended('step 1\n', { exitCode: null, signal: 'SIGKILL', cancelled: true })),
      script: () => use(call('run_command', { command: 'sleep 100' })),
    });
    expect((await result).haltReason).toBe('wall_limit');
    expect(stage.toolRuns[0]).toMatchObject({ failed: true, result: 'ended by signal SIGKILL\nstep 1' });
  });

  it('may be longer than a timer can be', async () => {
    const { result } = play({ executor: { wallSeconds: 1e9 }, script: () => say('end') });
    expect((await result).outcome).toBe('completed');
  });
});

describe('loops', () => {
  it('halts after the same call gave the same result four times', async () => {
    const { stage, result } = play({ script: () => use(call('run_command', { command: 'ls' })) });
    expect(await result).toMatchObject({ haltReason: 'loop', toolCalls: 4 });
    expect(stage.endings).toEqual([['t0', 'loop']]);
  });

  it('lets a poll go on whose result changes, and calls that differ', async () => {
    let polls = 0;
    const { result } = play({
      command: () => ended(`${polls++}`),
      script: (_request, turn) => (turn < 10 ? use(call('run_command', { command: 'tail log' })) : say('end')),
    });
    expect(await result).toMatchObject({ outcome: 'completed', toolCalls: 10 });
  });

  it('halts at the third answer with the same words and calls, before acting on it', async () => {
    let polls = 0;
    const { result } = play({
      command: () => ended(`${polls++}`),
      script: () => say('Let me look.', { toolCalls: [call('run_command', { command: 'tail log' })] }),
    });
    expect(await result).toMatchObject({ haltReason: 'loop', turns: 3, toolCalls: 2, finalReport: 'Let me look.' });
  });

  it("of a worker is reported to the orchestrator, with the worker's last words", async () => {
    const { stage, result } = play({
      script: delegateOnce(() => say('Again.', { toolCalls: [call('run_command', { command: 'ls' })] })),
    });
    expect((await result).outcome).toBe('completed');
    const report = stage.toolRuns.at(-1);
    expect(report).toMatchObject({ name: 'delegate', failed: true });
    expect(report?.result).toMatch(/repeating itself.*Again\./s);
  });
});

describe('answers that come to nothing', () => {
  it('that are cut twice in a row end the thread; the cut answer stays in its history', async () => {
    const { stage, result } = play({
      script: (_request, turn) => say(`long text ${turn}`, { finish: 'length' }),
    });
    expect(await result).toMatchObject({ haltReason: 'output_truncated', turns: 2, finalReport: 'long text 1' });
    expect(stage.requests[1]?.messages.slice(2)).toEqual([
      say('long text 0'),
      { role: 'user', content: expect.stringContaining('length limit') },
    ]);
  });

  it('that are cut are no report, and a useful turn between them forgives', async () => {
    const { result } = play({
      script: (_request, turn) => {
        if (turn === 5) return say('Report.');
        return turn % 2 === 0 ? say(`cut ${turn}`, { finish: 'length' }) : write(turn);
      },
    });
    expect(await result).toMatchObject({ outcome: 'completed', finalReport: 'Report.', turns: 6 });
  });

  it('that are cut after a whole call act on the call', async () => {
    const { stage, result } = play({
      script: (_request, turn) => (turn === 0 ? { ...write(0), finish: 'length' } : say('end')),
    });
    expect((await result).outcome).toBe('completed');
    expect(stage.toolRuns).toHaveLength(1);
  });

  it('that are blank twice in a row are invalid output', async () => {
    const { result } = play({ script: () => say(' \n', { reasoning: 'hmm' }) });
    expect(await result).toMatchObject({ haltReason: 'invalid_output', turns: 2 });
  });

  it('that only hold unusable calls are invalid output after six', async () => {
    const { result } = play({ script: (_request, turn) => use(call(`no_tool_${turn}`, {})) });
    expect(await result).toMatchObject({ haltReason: 'invalid_output', turns: 6 });
  });
});

describe('context of 2,048 tokens', () => {
  const contextTokens = 2048;

  it('never gets a prompt with an answer over what it holds, and ends when it is full', async () => {
    const { stage, result } = play({
      contextTokens,
      executor: { turnTokens: 512 },
      script: (_request, turn) => say('x'.repeat(300 + turn), { toolCalls: [call('list_files', { path: `${turn}` })] }),
    });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'context_exhausted' });
    expect(stage.requests.length).toBeGreaterThan(2);
    for (const { messages, tools, sampling } of stage.requests) {
      const prompt = Math.ceil((JSON.stringify(tools).length + messages.map((m) => m.content).join('').length) / 4);
      expect(prompt + sampling.maxTokens).toBeLessThanOrEqual(contextTokens - contextTokens / 16);
    }
    // Nothing was dropped: each request starts with the one before it.
    for (const [i, { messages }] of stage.requests.slice(1).entries())
      expect(messages.slice(0, stage.requests[i]?.messages.length)).toEqual(stage.requests[i]?.messages);
  });

  it('of a worker is reported to the orchestrator, which goes on', async () => {
    const { stage, result } = play({
      contextTokens,
      executor: { turnTokens: 512 },
      script: delegateOnce((_request, turn) =>
        say('y'.repeat(900 + turn), { toolCalls: [call('list_files', { path: `${turn}` })] }),
      ),
    });
    expect((await result).outcome).toBe('completed');
    expect(stage.endings[0]).toEqual(['t1', 'context_exhausted']);
    expect(stage.toolRuns.at(-1)).toMatchObject({ name: 'delegate', failed: true });
  });

  it('survives a huge result: it is cut to half of what is left', async () => {
    const { result, stage } = play({
      contextTokens,
      executor: { turnTokens: 512 },
      command: () => ended('1234 '.repeat(100_000)),
      script: (_request, turn) => (turn === 0 ? use(call('run_command', { command: 'cat big' })) : say('end')),
    });
    expect((await result).outcome).toBe('completed');
    expect(stage.toolRuns[0]?.shown.length).toBeLessThanOrEqual((contextTokens / 8) * 4);
  });

  it('does not charge for reasoning that the template drops at a new user message', async () => {
    const { stage, result } = play({
      contextTokens,
      executor: { turnTokens: 900 },
      script: (_request, turn) => (turn === 0 ? say('', { reasoning: 'hm', tokens: 900 }) : say('end')),
    });
    expect((await result).outcome).toBe('completed');
    // With the 900 tokens of reasoning in it, the prompt would leave less than 300.
    expect(stage.requests[1]?.sampling.maxTokens).toBeGreaterThan(700);
  });

  const overflow = (promptTokens: number) =>
    new MassError('invalid_input', 'too long', {
      details: { reason: 'context_length_exceeded', promptTokens, contextTokens },
    });

  it('is asked once more with a shorter answer when the endpoint counts more than was estimated', async () => {
    let refused = false;
    const { stage, result } = play({
      contextTokens,
      executor: { turnTokens: 1000 },
      script: () => {
        if (refused) return say('end');
        refused = true;
        throw overflow(1500);
      },
    });
    expect(await result).toMatchObject({ outcome: 'completed', turns: 1 });
    expect(stage.requests[1]?.sampling.maxTokens).toBe(contextTokens - 128 - 1500);
    expect(stage.requests[1]?.sampling.seed).toBe(stage.requests[0]?.sampling.seed);
  });

  it.each([1, 1900, 5000])('ends when the endpoint refuses a prompt of %i tokens', async (promptTokens) => {
    const { result } = play({
      contextTokens,
      script: () => {
        throw overflow(promptTokens);
      },
    });
    expect(await result).toMatchObject({ outcome: 'halted', haltReason: 'context_exhausted' });
  });
});
