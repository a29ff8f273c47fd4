import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MassError } from '../base/errors.ts';
import {
  composeTeacherPrompt,
  END_MARKER,
  findBlock,
  MAX_BLOCK_BYTES,
  replaceBlock,
  START_MARKER,
  validateBlock,
} from './workflow-block.ts';

const team = '[{"agent_id": "a", "role": "r", "instruction": "i"}]';

/** Text made of what could confuse a search for lines: line ends of all kinds, near-markers, odd characters. */
const hostile = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        '\n',
        '\r\n',
        '\r',
        ' ',
        '\u2028',
        '\ufeff',
        START_MARKER,
        END_MARKER,
        ` ${START_MARKER}`,
        '>>>',
        '<<<',
      ),
      fc.string({ unit: 'binary', maxLength: 8 }),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));
const holdsMarker = (text: string): boolean =>
  text.split('\n').some((line) => [START_MARKER, END_MARKER].includes(line.replace(/\r$/, '')));
const harmless = hostile.filter((text) => !holdsMarker(text));
const block = harmless.filter((text) => !text.endsWith('\r'));

const reasonOf = (f: () => unknown): unknown => {
  try {
    f();
  } catch (error) {
    if (error instanceof MassError) return error.details?.reason ?? error.code;
    throw error;
  }
  return undefined;
};

describe('teacher prompt', () => {
  it('appends block and directive to the bare prompt', () => {
    expect(composeTeacherPrompt({ barePrompt: 'Do it.', block: team, directive: 'Delegate.' })).toBe(
      `Do it.\n\n<<< TEAM WORKFLOW\n${team}\nTEAM WORKFLOW >>>\n\nDelegate.`,
    );
    expect(composeTeacherPrompt({ barePrompt: 'Do it.\n', block: team })).toBe(
      `Do it.\n\n<<< TEAM WORKFLOW\n${team}\nTEAM WORKFLOW >>>\n`,
    );
  });

  it('starts with the bare prompt byte for byte and gives the block back', () => {
    fc.assert(
      fc.property(harmless, block, harmless, (barePrompt, text, directive) => {
        const prompt = composeTeacherPrompt({ barePrompt, block: text, directive });
        expect(prompt.startsWith(barePrompt)).toBe(true);
        expect(prompt.endsWith(directive)).toBe(true);
        expect(findBlock(prompt).block).toBe(text);
      }),
    );
  });

  it('refuses parts that hold a marker line', () => {
    const line = `x\r\n${START_MARKER}\r\ny`;
    for (const parts of [
      { barePrompt: line, block: team },
      { barePrompt: '', block: line },
      { barePrompt: '', block: team, directive: END_MARKER },
      { barePrompt: '', block: 'x\r' },
    ])
      expect(reasonOf(() => composeTeacherPrompt(parts))).toBe('invalid_input');
  });
});

describe('findBlock and replaceBlock', () => {
  const wrap = (inner: string, end = '\n') => `head${end}${START_MARKER}${end}${inner}${END_MARKER}${end}tail`;

  it('finds the block in LF and CRLF prompts, and an empty one', () => {
    expect(findBlock(wrap('x\ny\n')).block).toBe('x\ny');
    expect(findBlock(wrap('x\r\ny\r\n', '\r\n')).block).toBe('x\r\ny');
    expect(findBlock(wrap('')).block).toBe('');
    expect(findBlock(wrap('\n')).block).toBe('');
    expect(findBlock(`${START_MARKER}\nx\n${END_MARKER}`)).toEqual({
      before: `${START_MARKER}\n`,
      block: 'x',
      after: `\n${END_MARKER}`,
    });
  });

  it('says what is wrong when there is not exactly one', () => {
    expect(reasonOf(() => findBlock('nothing'))).toBe('missing_start');
    expect(reasonOf(() => findBlock(`see ${START_MARKER}\n ${START_MARKER}\n${END_MARKER}`))).toBe('missing_start');
    expect(reasonOf(() => findBlock(START_MARKER))).toBe('missing_end');
    expect(reasonOf(() => findBlock(wrap('x\n') + wrap('x\n')))).toBe('several');
    expect(reasonOf(() => findBlock(`${wrap('x\n')}\n${START_MARKER}`))).toBe('several');
    expect(reasonOf(() => findBlock(`${END_MARKER}\n${START_MARKER}\n`))).toBe('reversed');
  });

  it('takes other spellings, also one fence for both ends', () => {
    const markers = { start: '=== BEGIN ===', end: '=== END ===' };
    expect(findBlock('a\n=== BEGIN ===\nx\n=== END ===\nb', markers).block).toBe('x');
    expect(replaceBlock('a\n---\nx\n---\nb', 'y', { start: '---', end: '---' })).toBe('a\n---\ny\n---\nb');
    expect(reasonOf(() => findBlock('---\nx\n---\ny\n---', { start: '---', end: '---' }))).toBe('several');
  });

  it('leaves every byte outside the block as it was', () => {
    fc.assert(
      fc.property(
        fc.record({
          head: harmless.map((t) => (t === '' ? t : `${t}\n`)),
          tail: harmless,
          old: harmless,
          fresh: block,
          end: fc.constantFrom('\n', '\r\n'),
        }),
        ({ head, tail, old, fresh, end }) => {
          const before = `${head}${START_MARKER}${end}`;
          const after = `${end}${END_MARKER}${end}${tail}`;
          const prompt = before + old + after;
          const found = findBlock(prompt);
          expect(found.before + found.block + found.after).toBe(prompt);
          if (!found.block.endsWith('\r')) expect(replaceBlock(prompt, found.block)).toBe(prompt);
          const replaced = replaceBlock(prompt, fresh);
          expect(replaced.startsWith(before)).toBe(true);
          expect(replaced.endsWith(found.after)).toBe(true);
          expect(findBlock(replaced).block).toBe(fresh);
          expect(replaced.length).toBe(before.length + fresh.length + found.after.length);
        },
      ),
    );
  });

  it('adds a line end only where an empty block has no line of its own', () => {
    expect(replaceBlock(wrap(''), 'x')).toBe(wrap('x\n'));
    expect(replaceBlock(wrap('', '\r\n'), 'x')).toBe(wrap('x\r\n', '\r\n'));
    expect(replaceBlock(wrap(''), '')).toBe(wrap(''));
  });

  it('never finds more than one block, nor throws anything untyped', () => {
    fc.assert(
      fc.property(hostile, (text) => {
        const reason = reasonOf(() => findBlock(text));
        expect([undefined, 'missing_start', 'missing_end', 'several', 'reversed']).toContain(reason);
      }),
    );
  });
});

describe('validateBlock', () => {
  const codes = (text: string): string[] => validateBlock(text).map((problem) => problem.code);

  it('accepts a team', () => {
    expect(codes(team)).toEqual([]);
    expect(codes(`{"agents": ${team}, "hops": ["orchestrator -> a"]}`)).toEqual([]);
  });

  it('gives every reason', () => {
    expect(codes('')).toEqual(['empty']);
    expect(codes(' \r\n\t')).toEqual(['empty']);
    expect(codes('x'.repeat(MAX_BLOCK_BYTES + 1))).toEqual(['too_large']);
    expect(codes('€'.repeat(MAX_BLOCK_BYTES / 3 + 1))).toEqual(['too_large']); // three bytes each
    expect(codes(`${START_MARKER}\n${team}\n${END_MARKER}`)).toEqual(['contains_marker']);
    expect(codes(`${team}\ud800`)).toEqual(['not_text']);
    expect(codes(`${team}\n\r`)).toEqual(['not_text']);
    expect(codes('plan, then code')).toEqual(['no_json']);
    expect(codes('{"agents": []}')).toEqual(['no_agents']);
    expect(codes('{"goal": "x"}')).toEqual(['no_agents']);
    expect(codes('[{"id":"a"},{"id":"a"},{"id":"b"},{"id":"a"}]')).toEqual(['duplicate_agent']);
    expect(codes(`${END_MARKER}\nno team`)).toEqual(['contains_marker', 'no_json']);
  });

  it('accepts exactly the largest size', () => {
    const padding = MAX_BLOCK_BYTES - team.length;
    expect(codes(team + ' '.repeat(padding))).toEqual([]);
    expect(codes(team + ' '.repeat(padding + 1))).toEqual(['too_large']);
  });

  it('lets through only what can be placed and found again', () => {
    const near = fc.array(fc.oneof(fc.constant(team), hostile), { maxLength: 3 }).map((parts) => parts.join('\n'));
    fc.assert(
      fc.property(near, (text) => {
        if (validateBlock(text).length > 0) return;
        expect(findBlock(composeTeacherPrompt({ barePrompt: 'p', block: text })).block).toBe(text);
      }),
    );
  });
});
