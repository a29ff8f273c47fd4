import type { LoadedModel } from '../main/inference/model/load.ts';
import { commonPrefix } from '../main/inference/scheduler/slot-choice.ts';

const TEAMS = 2;
const DELEGATIONS = 3;
const WORKER_TURNS = 3;
const TURN_TOKENS = 10;

export interface TraceShare {
  readonly requests: number;
  readonly promptTokens: number;
  /** prompt tokens that some earlier request had as its beginning: the most any cache could save */
  readonly reusableTokens: number;
  readonly cachedTokens: number;
  readonly share: number;
}

/**
 * Two teams at once: an orchestrator whose conversation grows, and workers it starts one after another, each with a
 * conversation of a few turns. All orchestrators share their system prompt and tools, all workers theirs.
 */
export async function measureTraces(model: LoadedModel): Promise<TraceShare> {
  const trace = new Trace(model);
  await Promise.all(Array.from({ length: TEAMS }, (_, team) => runTeam(trace, team)));
  const share = trace.result();
  console.error(
    `${model.info.id}: ${share.requests} requests, ${share.cachedTokens} of ${share.reusableTokens} reusable prompt tokens not evaluated again (${(100 * share.share).toFixed(1)} %)`,
  );
  return share;
}

async function runTeam(trace: Trace, team: number): Promise<void> {
  const lead = trace.thread(`team ${team} orchestrator`, `You lead a team. ${TOOLS}`, `Task ${team}: ${ASSIGNMENT}`);
  for (let delegation = 0; delegation < DELEGATIONS; delegation++) {
    await lead.turn();
    const name = `team ${team} worker ${delegation}`;
    const worker = trace.thread(name, `You are a worker. ${TOOLS}`, `Part ${team}.${delegation}: ${ASSIGNMENT}`);
    for (let turn = 0; turn < WORKER_TURNS; turn++) {
      await worker.turn();
      worker.say(`Output of command ${team}.${delegation}.${turn}: ${OUTPUT}`);
    }
    lead.say(`Report of worker ${delegation}: ${OUTPUT}`);
  }
  await lead.turn();
}

interface Thread {
  turn(): Promise<void>;
  say(text: string): void;
}

class Trace {
  readonly #model: LoadedModel;
  readonly #past: (readonly number[])[] = [];
  #requests = 0;
  #promptTokens = 0;
  #reusable = 0;
  #cached = 0;

  constructor(model: LoadedModel) {
    this.#model = model;
  }

  thread(affinity: string, system: string, task: string): Thread {
    const ids = this.#turn('system', system);
    const forkPoints = [ids.length];
    ids.push(...this.#turn('user', task));
    return {
      say: (text) => void ids.push(...this.#turn('user', text)),
      turn: async () => {
        ids.push(...this.#model.tokenize('<|im_start|>assistant\n', { special: true }));
        ids.push(...(await this.#complete([...ids], affinity, forkPoints)));
      },
    };
  }

  result(): TraceShare {
    return {
      requests: this.#requests,
      promptTokens: this.#promptTokens,
      reusableTokens: this.#reusable,
      cachedTokens: this.#cached,
      share: Math.round((1000 * this.#cached) / this.#reusable) / 1000,
    };
  }

  async #complete(promptIds: readonly number[], affinity: string, forkPoints: readonly number[]): Promise<number[]> {
    // The last token of a prompt is always evaluated: it gives the first logits.
    const target = promptIds.slice(0, -1);
    const reusable = Math.max(0, ...this.#past.map((ids) => commonPrefix(ids, target)));
    const result = await this.#model.generate({
      promptIds,
      affinity,
      forkPoints,
      temperature: 0.8,
      topP: 0.95,
      topK: 20,
      seed: this.#requests,
      maxTokens: TURN_TOKENS,
    });
    this.#requests++;
    this.#promptTokens += promptIds.length;
    this.#reusable += reusable;
    this.#cached += Math.min(result.cachedTokens, reusable);
    // The last sampled token was never evaluated, so no cache can hold it.
    this.#past.push([...promptIds, ...result.sampledIds.slice(0, -1)]);
    return [...result.sampledIds, ...this.#model.tokenize('<|im_end|>\n', { special: true })];
  }

  #turn(role: string, text: string): number[] {
    return this.#model.tokenize(`<|im_start|>${role}\n${text}<|im_end|>\n`, { special: true });
  }
}

const TOOLS =
  'Tools: list shows the files of a folder; read shows a file; write replaces a file; edit changes one place in a file; ' +
  'run starts a command and shows its output; delegate gives a part of the work to a worker and waits for the report. ' +
  'Call one tool at a time, look at what it answers, and say what you will do next before you do it.';
const ASSIGNMENT = 'read the table of deliveries, find the rows whose amounts do not add up, and write what is wrong.';
const OUTPUT = 'row 14 has 120 pieces at 3.50 but a total of 410.00; row 31 has no date; row 77 appears twice.';
