import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type JudgmentState,
  type RetentionPolicy,
  retentionPolicy,
  type SearchAction,
  type SearchHistory,
  type Verdict,
  type VersionState,
} from './retention.ts';

type Fate = 'completed' | 'halted' | 'failed'; // failed: the proposal
interface World {
  /** fate of v0, v1, ... as they are proposed */
  fates: Fate[];
  reference?: 'completed' | 'halted';
  /** the evaluator */
  judge: (question: Omit<JudgmentState, 'verdict'>) => Verdict;
  /** versions a person adds, keyed by the number of judgments made before */
  branches?: Map<number, number>;
}
interface Trace {
  history: SearchHistory;
  done: Extract<SearchAction, { kind: 'done' }>;
  steps: { history: SearchHistory; actions: readonly SearchAction[] }[];
}

const version = (n: number, more: Partial<VersionState> = {}): VersionState => ({
  version: n,
  parent: n === 0 ? null : n - 1,
  status: 'proposed',
  execution: 'pending',
  author: n === 0 ? 'seed' : 'proposer',
  ...more,
});

const start = (updates: number): SearchHistory => ({
  updates,
  reference: 'pending',
  versions: [version(0)],
  judgments: [],
});

const fateOf = (world: World, n: number): Fate => world.fates[n] ?? 'completed';

function apply(world: World, history: SearchHistory, action: SearchAction): SearchHistory {
  if (action.kind === 'execute') {
    if (action.target === 'reference') return { ...history, reference: world.reference ?? 'completed' };
    const target = action.target;
    const execution = fateOf(world, target) === 'halted' ? 'halted' : 'completed';
    return {
      ...history,
      versions: history.versions.map((v) => (v.version === target ? { ...v, execution } : v)),
    };
  }
  if (action.kind === 'judge') {
    const { purpose, challenger, incumbent } = action;
    const question = { purpose, challenger, incumbent };
    return { ...history, judgments: [...history.judgments, { ...question, verdict: world.judge(question) }] };
  }
  if (action.kind === 'propose') {
    const status = fateOf(world, action.version) === 'failed' ? 'proposal_failed' : 'proposed';
    const added = version(action.version, { parent: action.basedOn, status });
    return { ...history, versions: [...history.versions, added] };
  }
  return history;
}

/** Drives a search to its end and keeps every (history, actions) on the way. */
function play(policy: RetentionPolicy, updates: number, world: World): Trace {
  let history = start(updates);
  const steps: Trace['steps'] = [];
  const branches = new Map(world.branches);
  for (let guard = 0; guard < 500; guard++) {
    const branch = branches.get(history.judgments.length);
    if (branch !== undefined) {
      branches.delete(history.judgments.length);
      const last = history.versions[history.versions.length - 1]?.version ?? 0;
      const added = version(last + 1, { author: 'person', parent: branch });
      history = { ...history, versions: [...history.versions, added] };
    }
    const actions = policy.next(history);
    steps.push({ history, actions });
    const first = actions[0];
    if (first?.kind === 'done') return { history, done: first, steps };
    for (const action of actions) history = apply(world, history, action);
  }
  throw new Error('the search did not end');
}

/** All words of the given length over an alphabet. */
function words<T>(alphabet: readonly T[], length: number): T[][] {
  if (length === 0) return [[]];
  return words(alphabet, length - 1).flatMap((w) => alphabet.map((letter) => [...w, letter]));
}

const verdicts: Verdict[] = ['challenger', 'incumbent', 'tie'];
const fixed = retentionPolicy('fixed-reference');
const elite = retentionPolicy('elite');

/** What becomes of a version: L/T against the reference, or a win there and W/L/T in the arbitration, should it come. */
type Letter = 'L' | 'T' | 'WW' | 'WL' | 'WT';
const toVerdict = (c: string | undefined): Verdict => (c === 'W' ? 'challenger' : c === 'L' ? 'incumbent' : 'tie');

/** The rule of the method in its plainest form: who wears the crown (-1: nobody), and what is asked on the way. */
function plainFixedReference(word: readonly Letter[]): { crown: number; asked: string[] } {
  let crown = -1;
  const asked: string[] = [];
  word.forEach((letter, i) => {
    asked.push(`${i}:reference`);
    if (letter[0] !== 'W') return;
    if (crown >= 0) asked.push(`${i}:${crown}`);
    if (crown < 0 || letter === 'WW') crown = i;
  });
  return { crown, asked };
}

describe('fixed-reference', () => {
  it('decides every order of wins, losses and ties to length 6 as the plain rule does', () => {
    let sequences = 0;
    for (let length = 1; length <= 6; length++) {
      for (const word of words<Letter>(['L', 'T', 'WW', 'WL', 'WT'], length)) {
        const { crown, asked } = plainFixedReference(word);
        const { history, done } = play(fixed, length - 1, {
          fates: [],
          judge: ({ purpose, challenger }) => toVerdict(word[challenger]![purpose === 'reference' ? 0 : 1]),
        });
        expect(done).toEqual({ kind: 'done', champion: Math.max(crown, 0), provenWin: crown >= 0 });
        expect(history.judgments.map((j) => `${j.challenger}:${j.incumbent}`)).toEqual(asked);
        sequences++;
      }
    }
    expect(sequences).toBe(5 + 25 + 125 + 625 + 3125 + 15625);
  });

  it('runs reference and v0 first, then judges, then proposes from the newest executed version', () => {
    const { steps } = play(fixed, 1, { fates: [], judge: () => 'tie' });
    expect(steps.map((s) => s.actions)).toEqual([
      [
        { kind: 'execute', target: 'reference' },
        { kind: 'execute', target: 0 },
      ],
      [{ kind: 'judge', purpose: 'reference', challenger: 0, incumbent: 'reference' }],
      [{ kind: 'propose', version: 1, basedOn: 0 }],
      [{ kind: 'execute', target: 1 }],
      [{ kind: 'judge', purpose: 'reference', challenger: 1, incumbent: 'reference' }],
      [{ kind: 'done', champion: 0, provenWin: false }],
    ]);
  });

  it('bases proposals on the current design even when an older one is champion', () => {
    const { steps } = play(fixed, 3, {
      fates: ['completed', 'completed', 'halted'],
      judge: ({ challenger }) => (challenger === 0 ? 'challenger' : 'incumbent'),
    });
    const proposals = steps.flatMap((s) => s.actions).filter((a) => a.kind === 'propose');
    expect(proposals.map((a) => a.basedOn)).toEqual([0, 1, 2]);
  });

  it('judges a late branch after the end and gives it the crown only by arbitration', () => {
    const judge: World['judge'] = ({ challenger }) => (challenger === 1 ? 'incumbent' : 'challenger');
    const before = play(fixed, 1, { fates: [], judge });
    expect(before.done.champion).toBe(0);
    let history: SearchHistory = {
      ...before.history,
      versions: [...before.history.versions, version(2, { author: 'person', parent: 0 })],
    };
    const kinds: string[] = [];
    for (let i = 0; i < 4; i++) {
      const action = fixed.next(history)[0]!;
      kinds.push(action.kind === 'judge' ? action.purpose : action.kind);
      history = apply({ fates: [], judge }, history, action);
    }
    expect(kinds).toEqual(['execute', 'reference', 'arbitration', 'done']);
    expect(fixed.champion(history)).toEqual({ version: 2, provenWin: true });
  });
});

describe('elite', () => {
  it('decides every order of wins, losses and ties to length 6 as the plain rule does', () => {
    let sequences = 0;
    for (let length = 0; length <= 6; length++) {
      for (const word of words(['W', 'L', 'T'] as const, length)) {
        for (const last of ['W', 'L', 'T'] as const) {
          let best = 0;
          const asked: string[] = [];
          word.forEach((letter, i) => {
            asked.push(`${i + 1}:${best}`);
            if (letter === 'W') best = i + 1;
          });
          const { history, done, steps } = play(elite, length, {
            fates: [],
            judge: ({ purpose, challenger }) => toVerdict(purpose === 'final' ? last : word[challenger - 1]),
          });
          expect(done).toEqual({ kind: 'done', champion: best, provenWin: last === 'W' });
          expect(history.judgments.map((j) => `${j.challenger}:${j.incumbent}`)).toEqual([
            ...asked,
            `${best}:reference`,
          ]);
          const bases = steps.flatMap((s) => s.actions).filter((a) => a.kind === 'propose');
          expect(bases.map((a) => a.basedOn)).toEqual(asked.map((q) => Number(q.split(':')[1])));
          sequences++;
        }
      }
    }
    expect(sequences).toBe(3 * (1 + 3 + 9 + 27 + 81 + 243 + 729));
  });

  it('asks the final question again when a person’s late version takes the crown', () => {
    const judge: World['judge'] = () => 'challenger';
    const { history: end } = play(elite, 0, { fates: [], judge });
    expect(elite.champion(end)).toEqual({ version: 0, provenWin: true });
    let history: SearchHistory = { ...end, versions: [...end.versions, version(1, { author: 'person', parent: 0 })] };
    history = apply({ fates: [], judge }, history, elite.next(history)[0]!);
    history = apply({ fates: [], judge }, history, elite.next(history)[0]!);
    expect(elite.champion(history)).toEqual({ version: 1, provenWin: false });
    expect(elite.next(history)).toEqual([{ kind: 'judge', purpose: 'final', challenger: 1, incumbent: 'reference' }]);
  });

  it('does not ask whether a halted v0 beat the reference', () => {
    const { history, done } = play(elite, 1, { fates: ['halted', 'completed'], judge: () => 'tie' });
    expect(history.judgments.map((j) => j.purpose)).toEqual(['retained']);
    expect(done).toEqual({ kind: 'done', champion: 0, provenWin: false });
  });
});

describe.each([fixed, elite])('$id: failures and resuming', (policy) => {
  it('consumes one update for a failed proposal at each position, without execution or judgment', () => {
    for (let position = 1; position <= 5; position++) {
      const fates = Array.from({ length: 6 }, (_, i): Fate => (i === position ? 'failed' : 'completed'));
      const { history, done, steps } = play(policy, 5, { fates, judge: () => 'challenger' });
      expect(history.versions.map((v) => v.version)).toEqual([0, 1, 2, 3, 4, 5]);
      expect(history.judgments.some((j) => j.challenger === position)).toBe(false);
      expect(steps.flatMap((s) => s.actions)).not.toContainEqual({ kind: 'execute', target: position });
      expect(done).toMatchObject({ champion: position === 5 ? 4 : 5, provenWin: true });
    }
  });

  it('never crowns a version that halted, at each position, though its judge would let it win', () => {
    for (let position = 0; position <= 5; position++) {
      const fates = Array.from({ length: 6 }, (_, i): Fate => (i === position ? 'halted' : 'completed'));
      const { history, done } = play(policy, 5, { fates, judge: () => 'challenger' });
      expect(history.judgments.some((j) => j.challenger === position)).toBe(false);
      expect(done).toMatchObject({ champion: position === 5 ? 4 : 5, provenWin: true });
    }
  });

  it('ends with v0 and no proven win when everything halted', () => {
    const { history, done } = play(policy, 3, { fates: Array(4).fill('halted'), judge: () => 'challenger' });
    expect(history.judgments).toEqual([]);
    expect(done).toEqual({ kind: 'done', champion: 0, provenWin: false });
  });

  it('judges against a halted reference as usual', () => {
    const { done } = play(policy, 0, { fates: [], reference: 'halted', judge: () => 'challenger' });
    expect(done).toEqual({ kind: 'done', champion: 0, provenWin: true });
    const lost = play(policy, 0, { fates: [], reference: 'halted', judge: () => 'tie' });
    expect(lost.done).toEqual({ kind: 'done', champion: 0, provenWin: false });
  });

  it('stops after the last judgment and stays done', () => {
    const { history, done, steps } = play(policy, 2, { fates: [], judge: () => 'tie' });
    expect(steps.flatMap((s) => s.actions).filter((a) => a.kind === 'propose')).toHaveLength(2);
    expect(policy.next(history)).toEqual([done]);
    expect(policy.champion(history)).toEqual({ version: done.champion, provenWin: done.provenWin });
  });

  const world = fc.record({
    updates: fc.integer({ min: 0, max: 6 }),
    fates: fc.array(fc.constantFrom<Fate>('completed', 'halted', 'failed'), { maxLength: 12 }),
    reference: fc.constantFrom('completed' as const, 'halted' as const),
    answers: fc.array(fc.constantFrom(...verdicts), { minLength: 1, maxLength: 30 }),
    branches: fc.array(fc.integer({ min: 0, max: 6 }), { maxLength: 3 }),
  });
  const playWorld = (w: typeof world extends fc.Arbitrary<infer T> ? T : never): Trace =>
    play(policy, w.updates, {
      fates: w.fates.map((f, i) => (i === 0 && f === 'failed' ? 'halted' : f)),
      reference: w.reference,
      branches: new Map(w.branches.map((at) => [at, 0])),
      // the answer depends on the question alone, as in a store that is read again
      judge: ({ challenger, incumbent, purpose }) =>
        w.answers[
          (challenger * 7 + (incumbent === 'reference' ? 0 : incumbent + 1) * 3 + purpose.length) % w.answers.length
        ]!,
    });

  it('resumes from any prefix: the same history gives the same next step, and the same end', () => {
    fc.assert(
      fc.property(world, (w) => {
        const { steps, done, history } = playWorld(w);
        for (const step of steps) {
          const reread = JSON.parse(JSON.stringify(step.history)) as SearchHistory;
          expect(policy.next(reread)).toEqual(step.actions);
          expect(new Set(step.actions.map((a) => a.kind)).size).toBe(1);
        }
        expect(policy.next(history)).toEqual([done]);
        expect(new Set(history.versions.filter((v) => v.author === 'proposer').map((v) => v.version)).size).toBe(
          w.updates,
        );
      }),
    );
  });

  it('asks each question once, never about a halted challenger, and keeps a half-recorded batch valid', () => {
    fc.assert(
      fc.property(world, (w) => {
        const { history, steps } = playWorld(w);
        const questions = history.judgments.map((j) => `${j.purpose} ${j.challenger} ${j.incumbent}`);
        expect(new Set(questions).size).toBe(questions.length);
        const halted = history.versions.filter((v) => v.execution === 'halted').map((v) => v.version);
        expect(history.judgments.filter((j) => halted.includes(j.challenger))).toEqual([]);
        for (const { history: h, actions } of steps) {
          if (actions.length < 2) continue;
          const half = apply({ fates: w.fates, judge: () => 'tie' }, h, actions[0]!);
          expect(policy.next(half)).toEqual(actions.slice(1));
        }
      }),
    );
  });

  it('lets a person’s version consume no update', () => {
    const { history } = play(policy, 2, { fates: [], judge: () => 'tie', branches: new Map([[1, 0]]) });
    // after one judgment: fixed-reference has judged v0, elite has judged v1
    expect(history.versions.map((v) => v.author)).toEqual(
      policy.id === 'elite' ? ['seed', 'proposer', 'person', 'proposer'] : ['seed', 'person', 'proposer', 'proposer'],
    );
    expect(history.versions.every((v) => v.execution === 'completed')).toBe(true);
  });

  it('refuses a history it cannot read', () => {
    const broken = (versions: VersionState[]): SearchHistory => ({ ...start(1), versions });
    for (const versions of [[], [version(1)], [version(0), version(0)], [version(0, { status: 'proposal_failed' })]])
      expect(() => policy.next(broken(versions))).toThrow(/ascending order/);
  });
});

it('names the policies there are when asked for another', () => {
  expect(() => retentionPolicy('best')).toThrow(/"fixed-reference" or "elite"/);
});
