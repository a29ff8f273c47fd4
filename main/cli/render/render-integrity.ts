import type { FindingSummary, GateSummary } from '../../common/protocol/integrity.ts';
import { table } from './format.ts';

export function renderFindings(findings: readonly FindingSummary[]): string {
  if (findings.length === 0) return 'No finding: either nothing was collected yet, or the checks found nothing.';
  const several = new Set(findings.map(({ cycle }) => cycle)).size > 1;
  const rows = findings.map((finding) => [
    finding.findingId,
    `${several ? `cycle ${finding.cycle} ` : ''}${finding.taskId} run ${finding.run}`,
    finding.check,
    finding.severity,
    finding.state,
    finding.message + (finding.note === '' ? '' : ` [${finding.note}]`),
  ]);
  return table(['finding', 'episode', 'check', 'severity', 'state', 'message'], rows);
}

export function renderGates(gates: readonly GateSummary[]): string {
  if (gates.length === 0) return 'No gate was reached yet.';
  const rows = gates.map((gate) => [
    gate.gateId,
    `cycle ${gate.cycle} ${gate.kind}`,
    gate.state,
    gate.message + (gate.note === '' ? '' : ` [${gate.note}]`),
  ]);
  return table(['gate', 'kind', 'state', 'message'], rows);
}
