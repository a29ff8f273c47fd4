import { describe, expect, it } from 'vitest';
import type { DomainEvent } from '../../common/domain/events.ts';
import { createEventDescriber } from './describe-event.ts';
import { formatBytes, formatCount, formatSeconds, printable, table } from './format.ts';
import { renderStatus } from './render-status.ts';
import { createReporter } from './reporter.ts';

describe('format', () => {
  it('writes sizes, counts and durations', () => {
    expect([0, 1023, 1024, 1_572_864].map(formatBytes)).toEqual(['0 B', '1023 B', '1.0 KiB', '1.5 MiB']);
    expect([0, 999, 1000, 1_234_567].map(formatCount)).toEqual(['0', '999', '1,000', '1,234,567']);
    expect([59.4, 60, 3599, 7320].map(formatSeconds)).toEqual(['59 s', '1 min 0 s', '59 min 59 s', '2 h 2 min']);
  });
  it('aligns a table', () => {
    expect(
      table(
        ['a', 'bb'],
        [
          ['ccc', 'd'],
          ['e', ''],
        ],
      ),
    ).toBe('a    bb\nccc  d\ne');
  });
  it('defuses terminal control sequences and keeps lines', () => {
    expect(printable('a\u001b[2Jb\n\tc\u009b')).toBe('a\ufffd[2Jb\n\tc\ufffd');
  });
});

describe('events', () => {
  const planned = {
    type: 'episode.planned',
    episodeId: 'ep_1',
    experimentId: 'ex_1',
    cycle: 1,
    stage: 'collect',
    taskId: 'drug-safety',
    workflowVersion: 2,
    replicate: 3,
    seed: 1,
  } as const;
  const ended = {
    type: 'attempt.ended',
    attemptId: 'at_1',
    episodeId: 'ep_1',
    experimentId: 'ex_1',
    outcome: 'halted',
    haltReason: 'loop',
    ending: 'x',
    turns: 4,
    delegations: 1,
    toolCalls: 2,
    promptTokens: 10,
    generatedTokens: 1200,
    bodyHash: null,
    filesHash: null,
    workspaceBytes: 0,
  } as const;

  it('are named by what came before', () => {
    const describer = createEventDescriber();
    expect(describer.line(ended)).toMatch(/^An episode: halted/);
    describer.line(planned);
    expect(describer.line(ended)).toBe(
      'drug-safety collect v2 run 4: halted (loop), 4 turns, 1 delegations, 2 tool calls, 1,200 tokens.',
    );
    expect([describer.worthTelling(planned), describer.worthTelling(ended)]).toEqual([false, true]);
  });

  it('tell search runs, collected runs and rollouts of one task apart, and cycles', () => {
    const describer = createEventDescriber();
    const named = (event: Partial<typeof planned> | object) => {
      describer.line({ ...planned, ...event } as DomainEvent);
      return describer.line(ended).replace(/:.*/, '');
    };
    describer.line({
      type: 'rollout-set.created',
      setId: 'rs_1',
      experimentId: 'ex_1',
      generationId: 'gn_1',
      generation: 1,
      name: 'default',
      taskIds: ['drug-safety'],
      count: 4,
      seedBase: 910_000,
    });
    expect(named({ stage: 'search', workflowVersion: 0, replicate: 0 })).toBe('drug-safety search v0');
    expect(named({ stage: 'search', workflowVersion: null, replicate: 0 })).toBe('drug-safety search bare prompt');
    expect(named({ stage: 'collect', workflowVersion: 0, replicate: 0 })).toBe('drug-safety collect v0 run 1');
    expect(named({ stage: 'collect', workflowVersion: 0, replicate: 0, cycle: 2 })).toBe(
      'drug-safety cycle 2 collect v0 run 1',
    );
    expect(named({ stage: 'rollout', workflowVersion: null, replicate: 0, cycle: 0, setId: 'rs_1' })).toBe(
      'drug-safety rollout run 1 (L1, set "default")',
    );
  });

  it('say the cycle of a stage, and all cycles of a run', () => {
    const { line } = createEventDescriber();
    const stage = { type: 'stage.started', experimentId: 'ex_1', runId: 'run_1' } as const;
    expect(line({ ...stage, cycle: 2, stage: 'search' })).toBe('Cycle 2, stage search started.');
    expect(line({ ...stage, cycle: 0, stage: 'rollout' })).toBe('Stage rollout started.');
    const run = { type: 'run.started', runId: 'r', experimentId: 'ex_1', tasks: null, enginePid: 1 } as const;
    expect(line({ ...run, cycle: 1, cycles: [1, 2], stages: ['search', 'collect'] })).toBe(
      'Run started, cycle 1 and 2: search, collect.',
    );
    expect(line({ ...run, cycle: 1, stages: ['rank'] })).toBe('Run started, cycle 1: rank.');
    expect(line({ ...run, cycle: 0, stages: ['compare'] })).toBe('Run started: compare.');
  });

  it('are one redrawn line on a terminal', () => {
    let text = '';
    const stream = { isTTY: true, columns: 12, write: (part: string) => (text += part) };
    const reporter = createReporter(stream);
    const event = { type: 'notice', experimentId: null, level: 'info', code: 'c', message: 'a long message' } as const;
    reporter.event({ seq: 1, at: 0, event });
    reporter.end();
    reporter.end();
    expect(text).toBe('\r\u001b[2KNote: a lo…\n');
  });
});

const withFindings = (standing: 'free' | 'waiting', open: number, cleared: number) => ({
  findings: { open, cleared, upheld: 0 },
  standing,
});

it('renderStatus says everything about an experiment', () => {
  const page = renderStatus({
    name: 'first',
    cycle: 1,
    state: 'done',
    message: '',
    configHash: 'ab'.repeat(32),
    model: 'tiny',
    sandbox: 'bubblewrap',
    notices: ['Only one device.'],
    gates: [
      {
        gateId: 'ga_1',
        cycle: 1,
        kind: 'on-findings',
        message: 'Look.',
        details: {},
        state: 'open',
        note: '',
        openedAt: 0,
        decidedAt: null,
      },
    ],
    findings: { open: 2, cleared: 1, upheld: 0 },
    stages: [{ stage: 'search', state: 'done', done: 4, planned: 4, message: '' }],
    training: {
      trainingId: 'tr_1',
      state: 'running',
      step: 150,
      steps: 1624,
      loss: 1.25,
      validations: [
        { step: 0, loss: 1.5 },
        { step: 150, loss: null },
      ],
      checkpoints: [50, 100, 150],
      tokensPerSecond: 1234.4,
      etaSeconds: 7320,
      message: '',
    },
    lease: 'train L1 for "first"',
    tasks: [
      {
        taskId: 'drug-safety',
        split: 'train',
        versions: [{ version: 0, author: 'seed', status: 'run', verdict: 'tie' }],
        champion: 0,
        provenWin: false,
        collected: 4,
        collectPlanned: 4,
        matches: 6,
        matchesPlanned: 6,
        ratings: [
          { run: 2, rank: 1, score: 0.5, standardError: null, decision: 'train', ...withFindings('free', 0, 1) },
          { run: 1, rank: 2, score: 0.25, standardError: 0.5, decision: null, ...withFindings('waiting', 2, 0) },
        ],
        flagged: true,
        excluded: null,
      },
    ],
    tokens: { evaluatedPrompt: 1000, cachedPrompt: 20, generated: 3, ledgerMisses: 0 },
    seconds: 61,
    etaSeconds: null,
    bytesOnDisk: 2048,
    failures: [],
  });
  expect(page).toBe(
    [
      'first, cycle 1: done',
      'model tiny, sandbox bubblewrap, configuration abababababab',
      '',
      'stage   state  done  planned',
      'search  done   4     4',
      '',
      'drug-safety (train)',
      '  workflow  author  status  verdict',
      '  v0        seed    run     tie',
      '  champion v0 without a proven win; collected 4 of 4; matches 6 of 6; flagged: the fits disagree',
      '  rank  run  score  error  selection    findings',
      '  1     2    0.500  -      train        1 cleared',
      '  2     1    0.250  0.500  quarantined  2 open',
      '',
      'tokens   1,000 prompt evaluated, 20 reused, 3 generated, 0 ledger misses',
      'time     1 min 1 s',
      'disk     2.0 KiB',
      'device   train L1 for "first"',
      'training tr_1 running: step 150 of 1,624, loss 1.2500, 1,234 tokens/s, about 2 h 2 min left',
      '  validation loss by step  0: 1.5000, 150: none',
      '  checkpoints  50, 100, 150',
      'findings 2 open, 1 cleared',
      '',
      'Open gates',
      '  cycle 1 on-findings: Look.',
      '',
      'Notices',
      '  Only one device.',
    ].join('\n'),
  );
});
