import { MassError } from '../../common/base/errors.ts';
import type { DomainEvent } from '../../common/domain/events.ts';
import type { FindingSummary, GateSummary } from '../../common/protocol/integrity.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { type Experiment, requireExperiment } from '../experiments.ts';
import type { FindingRow, GateRow } from '../store/repositories/integrity.ts';
import type { Store } from '../store/store.ts';

type Methods = 'findings.list' | 'findings.decide' | 'gates.list' | 'gates.decide';

/** What the checks found and where runs stopped for a person, and what the person says to it. */
export const integrityHandlers = (store: Store): Pick<EngineHandlers, Methods> => ({
  'findings.list': async ({ name }) => listFindings(store, requireExperiment(store, name)),
  'findings.decide': async ({ name, findings: ids, decision, note }) => {
    const experiment = requireExperiment(store, name);
    if (decision === 'cleared' && note.trim() === '')
      throw new MassError('usage', 'Say why the finding is no problem: --note TEXT');
    const chosen = [...new Set(ids)].map((findingId) => requireFinding(store, experiment, findingId));
    store.append(
      ...chosen.map(
        ({ findingId, experimentId }): DomainEvent => ({
          type: 'finding.decided',
          findingId,
          experimentId,
          decision,
          note,
          by: 'person',
        }),
      ),
    );
    return listFindings(store, experiment).filter((finding) => ids.includes(finding.findingId));
  },
  'gates.list': async ({ name }) => store.integrity.gates(requireExperiment(store, name).experimentId).map(gateSummary),
  'gates.decide': async ({ name, gate, decision, note }) => {
    const experiment = requireExperiment(store, name);
    const { experimentId } = experiment;
    const { gateId, kind } = requireGate(store, experiment, { gate, decision });
    if (kind === 'short-pool' && decision === 'approved')
      throw new MassError(
        'conflict',
        `The missing runs cannot be approved into being; clear findings (mass findings ${name} --clear ID --note TEXT) and run again.`,
      );
    store.append({ type: 'gate.decided', gateId, experimentId, decision, note, by: 'person' });
    return gateSummary(store.integrity.gates(experimentId).find((row) => row.gateId === gateId) as GateRow);
  },
});

/** Undecided ones first, then by task and run. */
export function listFindings(store: Store, { experimentId }: Experiment): FindingSummary[] {
  const rank = (finding: FindingSummary): string =>
    `${finding.state === 'open' ? 0 : 1} ${finding.taskId} ${String(finding.run).padStart(6, '0')}`;
  return store.integrity
    .findings(experimentId)
    .map((row) => findingSummary(store, row))
    .sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0));
}

function findingSummary(store: Store, row: FindingRow): FindingSummary {
  const episode = store.episodes.byId(row.episodeId);
  if (!episode) throw new MassError('internal', `The finding ${row.findingId} is of an episode that does not exist.`);
  const { experimentId, cycle, taskId, replicate } = episode;
  const { findingId, episodeId, attemptId, checkId, severity, path, message, state, note } = row;
  return {
    findingId,
    cycle,
    taskId,
    run: replicate + 1,
    episodeId,
    attemptId,
    check: checkId,
    severity,
    path,
    message,
    details: JSON.parse(row.detailsJson) as Record<string, unknown>, // written by the checks
    state,
    note,
    selected: store.tournaments.selection({ experimentId, cycle, taskId }) !== undefined,
  };
}

export const gateSummary = (row: GateRow): GateSummary => {
  const { gateId, cycle, kind, message, state, note, openedAt, decidedAt } = row;
  const details = JSON.parse(row.detailsJson) as Record<string, unknown>; // written by the gate
  return { gateId, cycle, kind, message, details, state, note, openedAt, decidedAt };
};

function requireFinding(store: Store, { experimentId, name }: Experiment, findingId: string): FindingRow {
  const row = store.integrity.findings(experimentId).find((candidate) => candidate.findingId === findingId);
  if (row) return row;
  throw new MassError('not_found', `"${name}" has no finding ${findingId}; list them with: mass findings ${name}`);
}

interface GateChoice {
  readonly gate: string | undefined;
  readonly decision: 'approved' | 'rejected';
}

/** An open gate; to approve, also one that was rejected and asked for again by name. */
function requireGate(store: Store, { experimentId, name }: Experiment, { gate, decision }: GateChoice): GateRow {
  const rows = store.integrity.gates(experimentId);
  const open = rows.filter((row) => row.state === 'open');
  const isNamed = (row: GateRow): boolean => row.gateId === gate || row.kind === gate;
  if (gate !== undefined) {
    const found = open.findLast(isNamed) ?? rows.findLast((row) => isNamed(row) && row.state === 'rejected');
    if (found && (found.state === 'open' || decision === 'approved')) return found;
    throw new MassError('not_found', `"${name}" has no open gate "${gate}". ${openGates(open)}`);
  }
  const [only] = open;
  if (only && open.length === 1) return only;
  if (!only) throw new MassError('not_found', `"${name}" has no open gate.`);
  throw new MassError('usage', `Name the gate: "${name}" has ${open.length} open ones. ${openGates(open)}`);
}

const openGates = (open: readonly GateRow[]): string =>
  open.length === 0 ? 'None is open.' : `Open: ${open.map((row) => `${row.kind} (${row.gateId})`).join(', ')}.`;
