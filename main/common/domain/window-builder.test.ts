import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MassError } from '../base/errors.ts';
import { buildWindows, type Segment, type WindowDraft } from './window-builder.ts';
import { cutUnits } from './window-units.ts';

/**
 * Conversations are written as text, a character a token: `|` begins a turn (what stands before the first is the header),
 * `*` before it says that this turn is the query, and `<c1:...>` is what was sampled for completion c1.
 */
function segment(written: string, fresh = 0): Segment {
  const turns = written.split('|');
  const starts: number[] = [];
  const sampled: { completionId: string; start: number; end: number }[] = [];
  let text = '';
  let query: number | null = null;
  turns.forEach((turn, i) => {
    if (i > 0) starts.push(text.length);
    if (turn.startsWith('*')) query = i - 1;
    for (const [, id, said, plain] of turn.replace(/^\*/, '').matchAll(/<(\w+):([^>]*)>|([^<]+)/g)) {
      if (id !== undefined)
        sampled.push({ completionId: id, start: text.length, end: text.length + (said ?? '').length });
      text += said ?? plain ?? '';
    }
  });
  const headerEnd = starts[0] ?? text.length;
  const ids = Uint32Array.from(text, (char) => char.charCodeAt(0));
  return { header: ids.subarray(0, headerEnd), units: cutUnits({ ids, headerEnd, starts, sampled }), query, fresh };
}

const textOf = (ids: Uint32Array): string => String.fromCharCode(...ids);

/** The window's tokens, and under each its label: the token itself, or `-` for -100. */
function shown({ ids, blocks }: WindowDraft): [string, string] {
  const labels = [...ids].fill('-'.charCodeAt(0));
  for (const { start, end, part } of blocks)
    if (part === 'loss') labels.splice(start, end - start, ...ids.slice(start, end));
  return [textOf(ids), String.fromCharCode(...labels)];
}

interface Given {
  readonly window: number;
  readonly overlap?: number;
  readonly trained?: Set<string>;
}

const drafts = (built: Segment, { window, overlap = 0, trained = new Set() }: Given): WindowDraft[] => [
  ...buildWindows({
    segment: built,
    limits: { windowTokens: window, overlapTokens: overlap },
    trained,
    where: 'thread t of episode e',
  }),
];
const windows = (built: Segment, given: Given) => drafts(built, given).map(shown);

function refusal(act: () => unknown): MassError {
  try {
    act();
  } catch (error) {
    if (error instanceof MassError) return error;
    throw error;
  }
  throw new Error('Nothing was refused.');
}

// 8 + 5 + 4 + 4 tokens.
const short = 's:S.u:Q.|a:<c1:Xx.>|t:R.|a:<c2:Y.>';

describe('the windows of a segment, labels written out by hand', () => {
  it('train what was sampled, its end included, and nothing else', () => {
    expect(windows(segment(short), { window: 100, overlap: 100 })).toEqual([
      [
        's:S.u:Q.a:Xx.t:R.a:Y.', //
        '----------Xx.------Y.',
      ],
    ]);
  });

  it('name the origin of every token, in order', () => {
    expect(drafts(segment(short), { window: 100 })).toMatchObject([
      {
        blocks: [
          { start: 0, end: 8, part: 'header', completionId: null },
          { start: 8, end: 10, part: 'context', completionId: null },
          { start: 10, end: 13, part: 'loss', completionId: 'c1' },
          { start: 13, end: 17, part: 'context', completionId: null },
          { start: 17, end: 19, part: 'context', completionId: null },
          { start: 19, end: 21, part: 'loss', completionId: 'c2' },
        ],
        labelledTokens: 5,
        leftOut: 0,
      },
    ]);
  });

  it('reach up to the limit and not one token over it', () => {
    expect(windows(segment(short), { window: 21 })).toHaveLength(1);
    expect(windows(segment(short), { window: 20 })).toEqual([
      [
        's:S.u:Q.a:Xx.', //
        '----------Xx.',
      ],
      [
        's:S.u:Q.t:R.a:Y.', //
        '--------------Y.',
      ],
    ]);
  });

  it('begin with whole earlier turns as far as the overlap goes', () => {
    const three = 's:S.u:Q.|a:<c1:Xx.>|t:R.|a:<c2:Y.>|t:P.|a:<c3:Zzz.>';
    // t:R. and a:Y. have 8 tokens, a:Xx. before them 5 more; the run t:P.a:Zzz. has 10.
    expect(windows(segment(three), { window: 26, overlap: 12 })[1]).toEqual([
      's:S.u:Q.t:R.a:Y.t:P.a:Zzz.', //
      '----------------------Zzz.',
    ]);
    // Turns are taken whole: 7 tokens of overlap hold a:Y. alone.
    expect(windows(segment(three), { window: 26, overlap: 7 })[1]).toEqual([
      's:S.u:Q.a:Y.t:P.a:Zzz.', //
      '------------------Zzz.',
    ]);
    expect(windows(segment(three), { window: 26, overlap: 0 })[1]).toEqual([
      's:S.u:Q.t:P.a:Zzz.', //
      '--------------Zzz.',
    ]);
  });

  it('give the overlap up before an answer counts as too long', () => {
    const long = 's:S.u:Q.|a:<c1:Xx.>|a:<c2:Yyyyyyyyy.>';
    // 8 + 12: no token is left for the overlap of 5 that the limits would allow.
    expect(windows(segment(long), { window: 20, overlap: 5 })).toEqual([
      [
        's:S.u:Q.a:Xx.', //
        '----------Xx.',
      ],
      [
        's:S.u:Q.a:Yyyyyyyyy.', //
        '----------Yyyyyyyyy.',
      ],
    ]);
    const error = refusal(() => windows(segment(long), { window: 19, overlap: 5 }));
    expect(error).toMatchObject({
      code: 'invalid_input',
      details: { reason: 'block_too_long', completionId: 'c2', tokens: 20, windowTokens: 19 },
    });
    expect(error.message).toContain('thread t of episode e');
  });

  it('leave masked turns before an answer out, oldest first, when both do not fit, and count them', () => {
    const tools = 's:S.u:Q.|a:<c1:X.>|t:1234.|t:56.|a:<c2:Yyyyy.>';
    // 8 + 7 + 5 + 8 = 28 tokens.
    expect(drafts(segment(tools), { window: 28 }).map(({ leftOut }) => leftOut)).toEqual([0, 0]);
    const [, second] = drafts(segment(tools), { window: 27, overlap: 10 });
    expect(second && shown(second)).toEqual([
      's:S.u:Q.t:56.a:Yyyyy.', //
      '---------------Yyyyy.',
    ]);
    expect(second?.leftOut).toBe(7);
  });

  it('end at their last trained token', () => {
    expect(windows(segment('s:S.u:Q.|a:<c1:X.>\n|t:R.|t:P.'), { window: 100 })).toEqual([
      [
        's:S.u:Q.a:X.', //
        '----------X.',
      ],
    ]);
  });

  it('train a truncated last turn, but not the end that the template supplied', () => {
    const truncated = 's:S.u:Q.|a:<c1:Xx>.|u:go on.|a:<c2:Y>.';
    expect(windows(segment(truncated), { window: 100 })).toEqual([
      [
        's:S.u:Q.a:Xx.u:go on.a:Y', //
        '----------Xx-----------Y',
      ],
    ]);
  });

  it('train an answer with empty reasoning behind the block that the template supplied', () => {
    expect(windows(segment('s:S.u:Q.|a:[]<c1:X.>|t:R.|a:[<c2:]Y.>'), { window: 100 })).toEqual([
      [
        's:S.u:Q.a:[]X.t:R.a:[]Y.', //
        '------------X.-------]Y.',
      ],
    ]);
  });

  it('are none without an answer, or without a token that was sampled', () => {
    expect(windows(segment('s:S.u:Q.'), { window: 100 })).toEqual([]);
    expect(windows(segment('s:S.u:Q.|t:R.'), { window: 100 })).toEqual([]);
    expect(windows(segment('s:S.u:Q.|a:<c1:>'), { window: 100 })).toEqual([]);
  });

  it('refuse a header of more than nine tenths of the window, and take one of nine tenths', () => {
    const header = (tokens: number) => segment(`${'h'.repeat(tokens)}|<c1:X>`);
    expect(windows(header(90), { window: 100 })).toHaveLength(1);
    const error = refusal(() => windows(header(91), { window: 100 }));
    expect(error).toMatchObject({
      code: 'invalid_input',
      details: { reason: 'header_too_long', tokens: 91, windowTokens: 100 },
    });
  });
});

describe('several user turns', () => {
  // The reasoning of c1, in brackets, is dropped when the second user message comes; c2 keeps its own.
  const first = 's:S.u:Q.|a:<c1:[r]Xx.>';
  const second = 's:S.u:Q.|a:Xx.|*u:P.|a:<c2:[q]Y.>|t:R.|a:<c3:[]Z.>';

  it('train each turn in the context it was generated in', () => {
    const trained = new Set<string>();
    expect(windows(segment(first), { window: 100, trained })).toEqual([
      [
        's:S.u:Q.a:[r]Xx.', //
        '----------[r]Xx.',
      ],
    ]);
    expect(windows(segment(second, 1), { window: 100, overlap: 20, trained })).toEqual([
      [
        's:S.u:Q.a:Xx.u:P.a:[q]Y.t:R.a:[]Z.', //
        '-------------------[q]Y.------[]Z.',
      ],
    ]);
    expect([...trained]).toEqual(['c1', 'c2', 'c3']);
  });

  it('have the query in every window, also where the overlap does not reach it', () => {
    const trained = new Set(['c1']);
    // The header, the query and the last answer have 8 + 4 + 6; the tool's result 4.
    expect(windows(segment(second, 1), { window: 22, trained })).toEqual([
      [
        's:S.u:Q.u:P.a:[q]Y.', //
        '--------------[q]Y.',
      ],
      [
        's:S.u:Q.u:P.t:R.a:[]Z.', //
        '------------------[]Z.',
      ],
    ]);
  });

  it('have the query once where the overlap reaches it', () => {
    const [, last] = windows(segment(second, 1), { window: 29, overlap: 15, trained: new Set(['c1']) });
    expect(last).toEqual([
      's:S.u:Q.u:P.a:[q]Y.t:R.a:[]Z.', //
      '-------------------------[]Z.',
    ]);
  });

  it('count the query in what does not fit', () => {
    const error = refusal(() => windows(segment(second, 1), { window: 17, trained: new Set(['c1', 'c2']) }));
    expect(error.details).toMatchObject({ reason: 'block_too_long', completionId: 'c3', tokens: 18 });
  });

  it('do not leave the query out to make room, nor count it as left out', () => {
    const asked = 's:S.u:Q.|a:<c1:X.>|*u:P.|t:R.|a:<c2:Yyyyy.>';
    const [only] = drafts(segment(asked, 1), { window: 20, trained: new Set(['c1']) });
    expect(only && shown(only)).toEqual([
      's:S.u:Q.u:P.a:Yyyyy.', //
      '--------------Yyyyy.',
    ]);
    expect(only?.leftOut).toBe(4);
  });
});

describe('who owns a completion trains it', () => {
  it('in a fork: the shared turns are context there', () => {
    const trained = new Set<string>();
    const trunk = 's:S.u:Q.|a:<c1:X.>|t:R.|a:<c2:Y.>';
    const fork = 's:S.u:Q.|a:<c1:X.>|t:P.|a:<c3:Z.>';
    expect(windows(segment(trunk), { window: 100, trained })[0]?.[1]).toBe('----------X.------Y.');
    expect(windows(segment(fork, 1), { window: 100, overlap: 10, trained })).toEqual([
      [
        's:S.u:Q.a:X.t:P.a:Z.', //
        '------------------Z.',
      ],
    ]);
  });

  it('in a retry of the same prompt: both answers, each once', () => {
    const trained = new Set<string>();
    expect(windows(segment('s:S.u:Q.|a:<c1:X.>'), { window: 100, trained })).toEqual([
      ['s:S.u:Q.a:X.', '----------X.'],
    ]);
    expect(windows(segment('s:S.u:Q.|a:<c2:Y.>'), { window: 100, trained })).toEqual([
      ['s:S.u:Q.a:Y.', '----------Y.'],
    ]);
  });

  it('in a history that is replayed: nothing', () => {
    const trained = new Set<string>();
    expect(windows(segment(short), { window: 100, trained })).toHaveLength(1);
    expect(windows(segment(short), { window: 100, trained })).toEqual([]);
  });
});

interface Turn {
  readonly role: 'a' | 't' | 'u';
  readonly length: number;
  readonly cut: boolean;
}

const conversation = fc.record({
  header: fc.integer({ min: 1, max: 20 }),
  turns: fc.array(
    fc.record({
      role: fc.constantFrom('a', 'a', 't', 'u') as fc.Arbitrary<Turn['role']>,
      length: fc.integer({ min: 0, max: 14 }),
      cut: fc.boolean(),
    }),
    { maxLength: 14 },
  ),
  query: fc.nat({ max: 3 }),
  fresh: fc.nat({ max: 14 }),
  window: fc.integer({ min: 42, max: 90 }),
  overlap: fc.integer({ min: 0, max: 90 }),
  owned: fc.array(fc.nat({ max: 13 }), { maxLength: 3 }),
});
type Conversation = typeof conversation extends fc.Arbitrary<infer T> ? T : never;

/** No two tokens are equal, so that a token of a window tells where it came from. */
function build({ header, turns, query, fresh }: Conversation) {
  const starts: number[] = [];
  const sampled: { completionId: string; start: number; end: number }[] = [];
  let at = header;
  turns.forEach(({ role, length, cut }, i) => {
    starts.push(at);
    at += 2;
    if (role === 'a') sampled.push({ completionId: `c${i}`, start: at, end: at + length });
    at += length + (role === 'a' && !cut ? 0 : 1);
  });
  const ids = Uint32Array.from({ length: at }, (_, i) => i);
  const units = cutUnits({ ids, headerEnd: header, starts, sampled });
  const users = turns.flatMap(({ role }, i) => (role === 'u' ? [i] : []));
  const built: Segment = {
    header: ids.subarray(0, header),
    units,
    query: users[query] ?? null,
    fresh: Math.min(fresh, units.length),
  };
  return { built, sampled, starts, end: at };
}

describe('windows of any segment', () => {
  const check = (test: (given: Conversation) => void) => fc.assert(fc.property(conversation, test), { numRuns: 1000 });
  const make = (given: Conversation) => {
    const made = build(given);
    const owned = new Set(given.owned.map((i) => `c${i}`));
    // Header 20, query 17 and answer 16 are the largest: some windows of 42 to 52 tokens are too small, and say so.
    try {
      const found = drafts(made.built, { window: given.window, overlap: given.overlap, trained: new Set(owned) });
      return { ...made, owned, found };
    } catch (error) {
      if (!(error instanceof MassError) || error.details?.['reason'] !== 'block_too_long') throw error;
      return { ...made, owned, found: null };
    }
  };

  it('train every completion that nobody owned once, whole, and no other token', () => {
    check((given) => {
      const { found, sampled, owned } = make(given);
      if (found === null) return;
      const loss = found.flatMap(({ ids, blocks }) =>
        blocks.filter(({ part }) => part === 'loss').map(({ start, end }) => [...ids.slice(start, end)]),
      );
      const expected = sampled
        .filter(({ completionId, start, end }) => !owned.has(completionId) && end > start)
        .map(({ start, end }) => Array.from({ length: end - start }, (_, i) => start + i));
      expect(loss).toEqual(expected);
    });
  });

  it('keep to the limit, begin with the masked header, end at a trained token and are covered by their blocks', () => {
    check((given) => {
      for (const { ids, blocks, labelledTokens } of make(given).found ?? []) {
        expect(ids.length).toBeLessThanOrEqual(given.window);
        expect([...ids.slice(0, given.header)]).toEqual(Array.from({ length: given.header }, (_, i) => i));
        expect(blocks[0]).toMatchObject({ start: 0, end: given.header, part: 'header' });
        expect(blocks.at(-1)).toMatchObject({ end: ids.length, part: 'loss' });
        blocks.slice(1).forEach(({ start }, i) => {
          expect(start).toBe(blocks[i]?.end);
        });
        const labelled = blocks.filter(({ part }) => part === 'loss').map(({ start, end }) => end - start);
        expect(labelledTokens).toBe(labelled.reduce((sum, length) => sum + length, 0));
      }
    });
  });

  it('keep the order, leave nothing out between header or query and the end, and take earlier turns whole', () => {
    check((given) => {
      const { found, built, starts } = make(given);
      for (const { ids, blocks } of found ?? []) {
        const query = built.query === null ? undefined : starts[built.query];
        const firstLoss = blocks.find(({ part }) => part === 'loss');
        const asks = query !== undefined && query < (ids[firstLoss?.start ?? 0] ?? 0);
        if (asks) expect(ids).toContain(query);
        const jumps = [...ids.keys()].filter((i) => i > 0 && ids[i] !== (ids[i - 1] ?? 0) + 1).map((i) => ids[i] ?? 0);
        expect(jumps.length).toBeLessThanOrEqual(asks ? 2 : 1);
        for (const at of jumps) {
          expect(starts).toContain(at);
          expect(at).toBeGreaterThan(ids[ids.indexOf(at) - 1] ?? 0);
        }
      }
    });
  });

  it('take no more earlier context than allowed, the query aside, and none of it carries loss', () => {
    check((given) => {
      const { found, built } = make(given);
      const query = built.query === null ? [] : (built.units[built.query]?.parts ?? []).flatMap(({ ids }) => [...ids]);
      for (const { ids, blocks } of found ?? []) {
        const overlap = blocks
          .filter(({ part }) => part === 'overlap')
          .flatMap(({ start, end }) => [...ids.slice(start, end)]);
        expect(overlap.filter((id) => !query.includes(id)).length).toBeLessThanOrEqual(given.overlap);
      }
    });
  });

  it('refuse only what cannot fit: header, query and answer are longer than the window', () => {
    check((given) => {
      const { found, built, owned } = make(given);
      const lengths = built.units.map(({ parts }) => {
        const last = parts.findLastIndex(({ completionId }) => completionId !== null && !owned.has(completionId));
        return parts.slice(0, last + 1).reduce((sum, { ids }) => sum + ids.length, 0);
      });
      const query = built.query;
      const asked =
        query === null ? 0 : (built.units[query]?.parts ?? []).reduce((sum, { ids }) => sum + ids.length, 0);
      const fits = lengths.every(
        (length, i) =>
          length === 0 || given.header + length + (query !== null && query < i ? asked : 0) <= given.window,
      );
      expect(found !== null).toBe(fits);
    });
  });
});
