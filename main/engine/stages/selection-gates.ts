import type { GateKind } from '../../common/domain/integrity-events.ts';
import type { Pool } from '../../common/domain/quarantine.ts';
import { liftedEvent } from '../runner/gates.ts';
import type { StageContext } from '../runner/stage.ts';
import type { FindingRow } from '../store/repositories/integrity.ts';
import type { CycleServices } from './services.ts';

export interface TaskPool {
  readonly taskId: string;
  readonly pool: Pool;
}

/**
 * Stops at a gate when a task's pool is too short to be cut, or when undecided findings would change a cut. Throws `gate`;
 * returns when there is nothing to decide or a person approved going on without the runs that wait.
 */
export async function stopForPerson(
  services: CycleServices,
  context: StageContext,
  pools: readonly TaskPool[],
): Promise<void> {
  const short = pools.filter(({ pool }) => pool.missing > 0);
  if (short.length > 0) await context.gate('short-pool', shortPool(services, context, short));
  const deciding = pools.filter(({ pool }) => pool.deciding.length > 0);
  if (deciding.length > 0) await context.gate('on-findings', undecided(services, context, deciding));
}

/** Gates of the selection that nothing stands behind any more, because findings were decided since. */
export function liftGates({ store }: CycleServices, { experimentId, cycle }: StageContext, kinds: GateKind[]): void {
  const open = store.integrity
    .gates(experimentId)
    .filter((gate) => gate.cycle === cycle && gate.state === 'open' && kinds.includes(gate.kind));
  if (open.length > 0) store.append(...open.map((gate) => liftedEvent(experimentId, gate.gateId)));
}

function shortPool(services: CycleServices, context: StageContext, short: readonly TaskPool[]) {
  const { train, validate } = context.config.select;
  const needed = train + validate;
  const parts = short.map(({ taskId, pool }) => {
    const waiting = pool.leftOut.filter(({ standing }) => standing === 'waiting').length;
    const upheld = pool.leftOut.length - waiting;
    const why = [waiting > 0 ? `${waiting} wait for a decision` : '', upheld > 0 ? `${upheld} upheld` : ''];
    return `"${taskId}" lacks ${runs(pool.missing)} of ${needed} (left out: ${why.filter(Boolean).join(', ')})`;
  });
  const findings = short.flatMap(({ pool }) =>
    findingsOf(
      services,
      pool.leftOut.map(({ id }) => id),
    ),
  );
  const name = nameOf(services, context);
  return {
    message:
      `The selection is short: ${parts.join('; ')}. Look with "mass findings ${name}", clear what is no problem and run again, ` +
      'or make a new experiment with more collect.runs.',
    details: {
      tasks: short.map(({ taskId, pool }) => ({ taskId, needed, missing: pool.missing, leftOut: pool.leftOut })),
    },
    about: findings.map((row) => `${row.findingId} ${row.state}`),
  };
}

function undecided(services: CycleServices, context: StageContext, deciding: readonly TaskPool[]) {
  const findings = deciding
    .flatMap(({ pool }) => findingsOf(services, pool.deciding))
    .filter((row) => row.state === 'open');
  const parts = deciding.map(({ taskId, pool }) => `${runs(pool.deciding.length)} of "${taskId}"`);
  const name = nameOf(services, context);
  return {
    message:
      `${parts.join(' and ')} would be selected but for ${findings.length} undecided ${findings.length === 1 ? 'finding' : 'findings'}: ` +
      `look with "mass findings ${name}" and clear or uphold them, or approve to go on without those runs.`,
    details: { findings: findings.map((row) => row.findingId) },
    about: findings.map((row) => row.findingId),
  };
}

const runs = (count: number): string => `${count} ${count === 1 ? 'run' : 'runs'}`;
const findingsOf = ({ store }: CycleServices, episodeIds: readonly string[]): FindingRow[] =>
  episodeIds.flatMap((episodeId) => store.integrity.findingsOf(episodeId));
const nameOf = ({ store }: CycleServices, { experimentId }: StageContext): string =>
  store.experiments.byId(experimentId)?.name ?? experimentId;
