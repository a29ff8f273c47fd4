import type { LoadedModel } from '../main/inference/model/load.ts';

const PARALLEL = [1, 2, 4, 8];
const ROUNDS = 3;
/** No further round is begun after this. */
const BUDGET_MS = 60_000;
const TURNS = 2;
const TURN_TOKENS = 40;

export interface Throughput {
  readonly conversations: number;
  /** generated tokens of all conversations of one parallel run */
  readonly tokens: number;
  readonly generatedPerSecond: { readonly sequential: number; readonly parallel: number };
  /** speed side by side over speed one after another, for the same conversations */
  readonly ratio: number;
  /** batches of one parallel run by number of sequences in them */
  readonly batchSizes: Readonly<Record<number, number>>;
}

/**
 * The same conversations one after another, then side by side, a few rounds: of each the fastest counts, because other
 * work on the machine only ever slows a round, and compute threads that wait for each other suffer most from it.
 */
export async function measureThroughput(model: LoadedModel): Promise<Throughput[]> {
  await converse(model, 'warm-up', 0);
  const started = performance.now();
  const best = new Map<number, Round>();
  for (let round = 0; round < ROUNDS; round++) {
    if (round > 0 && performance.now() - started > BUDGET_MS) break;
    for (const conversations of PARALLEL) {
      const measured = await measureRound(model, conversations, round);
      const known = best.get(conversations) ?? measured;
      best.set(conversations, {
        ...measured,
        sequential: Math.max(known.sequential, measured.sequential),
        parallel: Math.max(known.parallel, measured.parallel),
      });
    }
  }
  return [...best].map(([conversations, { tokens, sequential, parallel, batchSizes }]) => {
    const ratio = parallel / sequential;
    console.error(
      `${conversations} conversations: ${sequential.toFixed(0)} tokens/s one after another, ${parallel.toFixed(0)} side by side (x${ratio.toFixed(2)})`,
    );
    const generatedPerSecond = { sequential: rounded(sequential), parallel: rounded(parallel) };
    return { conversations, tokens, generatedPerSecond, ratio: rounded(ratio), batchSizes };
  });
}

interface Round {
  readonly tokens: number;
  /** generated tokens a second */
  readonly sequential: number;
  readonly parallel: number;
  readonly batchSizes: Readonly<Record<number, number>>;
}

async function measureRound(model: LoadedModel, conversations: number, round: number): Promise<Round> {
  const all = Array.from({ length: conversations }, (_, i) => i);
  const sequential = await timed(async () => {
    let total = 0;
    for (const i of all) total += await converse(model, `sequential ${round}.${conversations}`, i);
    return total;
  });
  const before = model.metrics().batchSizes;
  const parallel = await timed(async () => {
    const counts = await Promise.all(all.map((i) => converse(model, `parallel ${round}.${conversations}`, i)));
    return counts.reduce((sum, count) => sum + count, 0);
  });
  const batchSizes = Object.fromEntries(
    Object.entries(model.metrics().batchSizes)
      .map(([size, count]) => [size, count - (before[Number(size)] ?? 0)] as const)
      .filter(([, count]) => count > 0),
  );
  return {
    tokens: parallel.generated,
    sequential: sequential.generated / sequential.seconds,
    parallel: parallel.generated / parallel.seconds,
    batchSizes,
  };
}

const rounded = (value: number): number => Math.round(value * 100) / 100;

async function timed(work: () => Promise<number>): Promise<{ generated: number; seconds: number }> {
  const started = performance.now();
  const generated = await work();
  return { generated, seconds: (performance.now() - started) / 1000 };
}

/** One conversation of a few turns; `run` makes its beginning unlike any other run's, so that nothing is in a cache. */
async function converse(model: LoadedModel, run: string, index: number): Promise<number> {
  let ids: number[] = [];
  let generated = 0;
  for (let turn = 0; turn < TURNS; turn++) {
    const question = `<|im_start|>user\n(${run}, ${index}) ${QUESTIONS[(index + turn) % QUESTIONS.length]}<|im_end|>\n<|im_start|>assistant\n`;
    ids = [...ids, ...model.tokenize(question, { special: true })];
    const result = await model.generate({
      promptIds: ids,
      affinity: `${run} ${index}`,
      temperature: 0.8,
      topP: 0.95,
      topK: 20,
      seed: index * TURNS + turn,
      maxTokens: TURN_TOKENS,
    });
    generated += result.sampledIds.length;
    ids = [...ids, ...result.sampledIds, ...model.tokenize('\n', { special: false })];
  }
  return generated;
}

const QUESTIONS = [
  'Describe how a bakery plans its week, from ordering flour to closing the books on Sunday evening, in full sentences.',
  'Explain to a new colleague how to check a table of measurements for mistakes before anybody computes an average from it.',
  'List what a small clinic needs to record about every delivery of medicine, and say for each item why it matters later.',
  'Tell the story of a robot that learns to stack boxes, with the three failures it has before it succeeds at last.',
];
