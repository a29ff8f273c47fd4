import { describe, expect, it } from 'vitest';
import type { EpisodeWindows, WindowText } from '../../common/protocol/windows.ts';
import { noPaint, paintOf, terminalPaint } from './paint.ts';
import { renderEpisodeHead, renderWindow, renderWindowSet } from './render-windows.ts';

type Block = WindowText['blocks'][number];

function textOf(...parts: [Block['part'], string][]): WindowText {
  let at = 0;
  const blocks = parts.map(([part, text]): Block => {
    const start = at;
    at += text.length;
    return { start, end: at, part, completionId: part === 'loss' ? `c${start}` : null, text };
  });
  return { index: 7, blocks };
}

function windowOf({ blocks }: WindowText, survivors: string[] = []): EpisodeWindows['windows'][number] {
  return {
    index: 7,
    offset: 0,
    length: blocks.at(-1)?.end ?? 0,
    split: 'train',
    taskId: 'one',
    role: 'subagent',
    episodeId: 'ep_1',
    threadId: 'at_1:t1',
    blocks,
    labelledTokens: blocks.reduce((sum, { part, start, end }) => sum + (part === 'loss' ? end - start : 0), 0),
    thread: 'checker',
    survivors,
  };
}

const conversation = textOf(
  ['header', '<s>\nBe brief.\n<u>\nGo.\n'],
  ['overlap', '<a>\nOld.\n'],
  ['context', '<a>\n'],
  ['loss', 'First line\n\nthird <e>'],
  ['context', '\n'],
  ['context', '<t>\nA result'],
  ['loss', 'goes on'],
);
const counts = { windows: 1, tokens: 100, labelledTokens: 40 };
const episode: EpisodeWindows = {
  episodeId: 'ep_1',
  taskId: 'one',
  run: 3,
  rank: 1,
  split: 'train',
  counts,
  workflowOverlap: { ngram: 3, shared: 2, ofWorkflow: 8, share: 0.25 },
  windowSetId: 'ws_1',
  cycle: 1,
  removed: '\n<<< TEAM\ncheck each number\nTEAM >>>\n',
  windows: [windowOf(conversation, ['check each number'])],
};

describe('a window as text', () => {
  it('has every line with a sign for what happens to it, without colour', () => {
    const place = { window: windowOf(conversation), number: 1, of: 2 };
    expect(renderWindow(place, conversation, noPaint)).toBe(
      [
        '=== window 1 of 2: subagent "checker", 76 tokens, 28 trained ===',
        'thread at_1:t1',
        '| <s>',
        '| Be brief.',
        '| <u>',
        '| Go.',
        '~ <a>',
        '~ Old.',
        '  <a>',
        '+ First line',
        '+',
        '+ third <e>',
        '  <t>',
        '  A result',
        '+·goes on',
      ].join('\n'),
    );
  });

  it('has the same text on a terminal, coloured', () => {
    const place = { window: windowOf(conversation), number: 1, of: 2 };
    const coloured = renderWindow(place, conversation, terminalPaint);
    expect(coloured).toContain('\u001b[32m+\u001b[0m \u001b[32mFirst line\u001b[0m\n');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the colours
    expect(coloured.replace(/\u001b\[[\d;]*m/g, '')).toBe(renderWindow(place, conversation, noPaint));
  });

  it('lets no control sequence of a model or a tool act on the terminal', () => {
    const text = textOf(['context', 'a\u001b[2Jb\n'], ['loss', '\u0001c\u0002\r\n']);
    const shown = renderWindow({ window: windowOf(text, ['c']), number: 1, of: 1 }, text, noPaint);
    expect(shown.split('\n').slice(2)).toEqual(['  a\ufffd[2Jb', '+ \ufffd[[c]]\ufffd\ufffd']);
  });

  it('marks surviving passages in what is trained, over line ends and signs, and nowhere else', () => {
    const text = textOf(
      ['context', 'check each number\n'],
      ['loss', 'I "Check each\nnumber", recheck each number; check each numbers.'],
    );
    const shown = renderWindow({ window: windowOf(text, ['check each number']), number: 1, of: 1 }, text, noPaint);
    expect(shown.split('\n').slice(2)).toEqual([
      '  check each number',
      '+ I "[[Check each]]',
      '+ [[number]]", recheck each number; check each numbers.',
    ]);
  });
});

describe('the head of an episode', () => {
  it('counts, explains the signs, and shows what was removed and what of it is still said', () => {
    expect(renderEpisodeHead(episode, noPaint).split('\n')).toEqual([
      'one run 3, rank 1, to train: 1 window, 40 of 100 tokens trained (40%)',
      'episode ep_1, cycle 1, window set ws_1',
      '',
      'The sign before a line says what happens to its tokens:',
      '+ trained: the model sampled it, and learns to say it',
      '  masked: read, not learned',
      '~ masked: repeated from an earlier window or an earlier question',
      '| masked: system prompt and first message, in every window',
      '"·" after the sign: the line goes on from the one above.',
      '',
      "Removed from the orchestrator's first message (37 characters):",
      '- <<< TEAM',
      '- check each number',
      '- TEAM >>>',
      '',
      "Still said in trained answers: 2 of the workflow's 8 runs of 3 words (25%). Marked below: [[like this]].",
      '  "check each number" in window 1',
      '',
      'window  conversation        tokens  header |  overlap ~  masked  trained +',
      '     1  subagent "checker"      76        22          9      17         28',
    ]);
  });

  it('says so when nothing is left, or when nothing was removed', () => {
    const none = { ...episode, workflowOverlap: { ngram: 3, shared: 0, ofWorkflow: 8, share: 0 } };
    expect(renderEpisodeHead(none, noPaint)).toContain('None of the 8 runs of 3 words in the workflow is said');
    expect(renderEpisodeHead({ ...none, removed: '' }, noPaint)).toContain('Nothing was removed');
  });
});

it('a window set is told episode by episode, with the command that looks into one', () => {
  const { windows: _windows, removed: _removed, windowSetId, cycle, ...rendered } = episode;
  const set = {
    windowSetId,
    cycle,
    folder: '/data/windows/ws_1',
    windowTokens: 2048,
    overlapTokens: 256,
    total: { windows: 1200, tokens: 3_000_000, labelledTokens: 1_000_000 },
    leftOut: { windows: 1, tokens: 1234 },
    episodes: [rendered],
  };
  expect(renderWindowSet('first', set).split('\n')).toEqual([
    'Cycle 1: 1,200 windows of at most 2,048 tokens; 1,000,000 of 3,000,000 tokens are trained (33%).',
    '1 window had to leave out context right before a trained answer: 1,234 tokens.',
    '/data/windows/ws_1',
    '',
    'episode  split  windows  tokens  trained  workflow still said',
    'one/3    train        1     100       40               2 of 8',
    '',
    'Look into one with: mass render first --inspect one/3 | less',
  ]);
});

describe('colour', () => {
  it.each([
    [{ isTTY: true }, {}, true],
    [{ isTTY: false }, {}, false],
    [{ isTTY: true }, { NO_COLOR: '1' }, false],
    [{}, { FORCE_COLOR: '1' }, true],
    [{}, { FORCE_COLOR: '0' }, false],
  ])('of %j with %j: %s', (stream, env, coloured) => {
    expect(paintOf(stream, env)).toBe(coloured ? terminalPaint : noPaint);
  });
});
