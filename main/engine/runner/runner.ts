import { isCancelled, MassError, toErrorData } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import type { ExperimentConfig } from '../../common/domain/config.ts';
import type { DomainEvent, RunState, StageName } from '../../common/domain/events.ts';
import { newId } from '../../node/ids.ts';
import { createGate, type GateParts } from './gates.ts';
import { createSlots } from './slots.ts';
import type { Stage, StageContext } from './stage.ts';

export interface RunOrder {
  readonly experimentId: string;
  readonly name: string;
  /** 1-based; 0 for work outside the cycles (rollouts, comparisons). Of a run over several: the one being run. */
  readonly cycle: number;
  /** The cycles of the run in order; `cycle` alone when absent. Each runs every stage before the next begins. */
  readonly cycles?: readonly number[];
  /** Id of the row that the run works on: a rollout set, a comparison. */
  readonly subject?: string;
  readonly config: ExperimentConfig;
  readonly stages: readonly StageName[];
  readonly tasks: readonly string[] | null;
}

export interface RunEnd {
  readonly state: Exclude<RunState, 'running' | 'interrupted'>;
  readonly message: string;
  readonly error: unknown;
}

/** What the runner needs of the world: a log to append to, the gates in it, and stages made for one run. */
export interface RunnerParts extends GateParts {
  /** As `append`, and never fails because the disk is full: see the store. */
  readonly appendEnd: (...events: DomainEvent[]) => void;
  readonly prepare: (
    order: RunOrder,
    signal: AbortSignal,
  ) => Promise<{ stages: readonly Stage[]; dispose(): Promise<void> }>;
  readonly logger: Logger;
}

export interface ActiveRun {
  readonly runId: string;
  readonly order: RunOrder;
  readonly ended: Promise<RunEnd>;
  readonly doing: () => string;
  stop(mode: 'after' | 'now'): void;
}

/**
 * Runs stages of one experiment in order and records how each ended. Every way out leaves the log saying so; what a
 * stage finished is finished, whatever happens later. Errors: `conflict` when the experiment is already running.
 */
export function createRunner(parts: RunnerParts) {
  const active = new Map<string, ActiveRun>();

  return {
    active: (): ActiveRun[] => [...active.values()],
    find: (runId: string) => [...active.values()].find((run) => run.runId === runId),
    start(order: RunOrder): ActiveRun {
      if (active.has(order.experimentId))
        throw new MassError('conflict', `"${order.name}" is already running; watch it with: mass status ${order.name}`);
      const run = startRun(parts, order, () => active.delete(order.experimentId));
      active.set(order.experimentId, run);
      return run;
    },
  };
}

function startRun(parts: RunnerParts, order: RunOrder, onEnd: () => void): ActiveRun {
  const runId = newId('run');
  const abort = new AbortController();
  let draining = false;
  let doing = 'starting';
  const cycles = cyclesOf(order);
  parts.append({
    type: 'run.started',
    runId,
    experimentId: order.experimentId,
    cycle: cycles[0] ?? order.cycle,
    ...(cycles.length > 1 ? { cycles: [...cycles] } : {}),
    stages: [...order.stages],
    tasks: order.tasks && [...order.tasks],
    enginePid: process.pid,
  });
  const context: RunContext = {
    experimentId: order.experimentId,
    cycle: cycles[0] ?? order.cycle,
    config: order.config,
    tasks: order.tasks,
    signal: abort.signal,
    draining: () => draining,
    slot: createSlots(order.config.parallel, abort.signal),
    doing: (what) => {
      doing = what;
    },
  };
  const ended = runStages(parts, { order, context, runId }).finally(onEnd);
  return {
    runId,
    order,
    ended,
    doing: () => doing,
    stop: (mode) => {
      draining = true;
      if (mode === 'now') abort.abort();
    },
  };
}

const cyclesOf = (order: RunOrder): readonly number[] => order.cycles ?? [order.cycle];

/** A gate belongs to one cycle. */
type RunContext = Omit<StageContext, 'gate'>;

interface RunInput {
  readonly order: RunOrder;
  readonly context: RunContext;
  readonly runId: string;
}

async function runStages(parts: RunnerParts, { order, context, runId }: RunInput): Promise<RunEnd> {
  const end = await attempt();
  parts.appendEnd({
    type: 'run.ended',
    runId,
    experimentId: order.experimentId,
    state: end.state,
    message: end.message,
    errorJson: end.error === null ? null : JSON.stringify(end.error),
  });
  return end;

  async function attempt(): Promise<RunEnd> {
    try {
      for (const cycle of cyclesOf(order)) {
        const stopped = await runCycle(parts, { order: { ...order, cycle }, context: { ...context, cycle }, runId });
        if (stopped) return stopped;
      }
      return { state: 'done', message: 'Every stage that was asked for is done.', error: null };
    } catch (error) {
      if (isCancelled(error))
        return { state: 'stopped', message: 'Stopped at once; the units in flight will be done again.', error: null };
      const data = toErrorData(error);
      if (data.code === 'gate') return { state: 'gated', message: data.message, error: data };
      parts.logger.log('error', 'A run failed.', {
        runId,
        error: data,
        stack: error instanceof Error ? error.stack : undefined,
      });
      return { state: 'failed', message: data.message, error: data };
    }
  }
}

/** The stages of one cycle, over parts prepared for it; null when all of them are done. */
async function runCycle(parts: RunnerParts, { order, context, runId }: RunInput): Promise<RunEnd | null> {
  const where = order.cycles === undefined ? '' : ` of cycle ${order.cycle}`;
  const stopped = (name: StageName): RunEnd => ({
    state: 'stopped',
    message: `Stopped during ${name}${where}; the next run continues there.`,
    error: null,
  });
  const { experimentId, name: experiment, cycle, config } = order;
  const gate = createGate(parts, { experimentId, name: experiment, cycle, config, runId });
  const prepared = await parts.prepare(order, context.signal);
  try {
    for (const name of order.stages) {
      const stage = prepared.stages.find((candidate) => candidate.name === name);
      if (!stage) throw new MassError('usage', `The stage "${name}" cannot be run yet.`);
      if (!(await runStage(parts, stage, { order, context: { ...context, gate }, runId }))) return stopped(name);
    }
    return null;
  } finally {
    await prepared.dispose();
  }
}

/** True when everything of the stage is done. */
async function runStage(
  parts: RunnerParts,
  stage: Stage,
  { order, context, runId }: RunInput & { readonly context: StageContext },
): Promise<boolean> {
  const key = { experimentId: order.experimentId, cycle: order.cycle, stage: stage.name, runId };
  parts.append({ type: 'stage.started', ...key });
  try {
    const { complete, message } = await stage.run(context);
    parts.append({ type: 'stage.ended', ...key, state: complete ? 'done' : 'stopped', message });
    return complete;
  } catch (error) {
    const { code, message } = toErrorData(error);
    const state = isCancelled(error) ? 'stopped' : code === 'gate' ? 'gated' : 'failed';
    parts.appendEnd({ type: 'stage.ended', ...key, state, message });
    throw error;
  }
}
