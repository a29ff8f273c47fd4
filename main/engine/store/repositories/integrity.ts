import type Database from 'better-sqlite3';
import type { FindingState, GateKind, GateState, Severity } from '../../../common/domain/integrity-events.ts';
import { inserter, type Projections } from '../projection.ts';

export interface EpisodeCheckRow {
  readonly attemptId: string;
  readonly episodeId: string;
  readonly checksVersion: number;
  readonly findings: number;
}
export interface FindingRow {
  readonly findingId: string;
  readonly experimentId: string;
  readonly episodeId: string;
  readonly attemptId: string;
  readonly checkId: string;
  readonly severity: Severity;
  readonly path: string;
  readonly message: string;
  readonly detailsJson: string;
  readonly state: FindingState;
  readonly note: string;
  readonly recordedAt: number;
  readonly decidedAt: number | null;
}
export interface GateRow {
  readonly gateId: string;
  readonly experimentId: string;
  readonly cycle: number;
  readonly kind: GateKind;
  readonly runId: string;
  readonly aboutJson: string;
  readonly message: string;
  readonly detailsJson: string;
  readonly state: GateState;
  readonly note: string;
  readonly decidedBy: 'person' | 'engine' | null;
  readonly openedAt: number;
  readonly decidedAt: number | null;
}

const findingColumns = [
  'findingId',
  'experimentId',
  'episodeId',
  'attemptId',
  'checkId',
  'severity',
  'path',
  'message',
  'detailsJson',
  'recordedAt',
];
const gateColumns = [
  'gateId',
  'experimentId',
  'cycle',
  'kind',
  'runId',
  'aboutJson',
  'message',
  'detailsJson',
  'openedAt',
];

/** Findings of the integrity checks, and gates: what waits for a person, and what one decided. */
export function integrityRepository(db: Database.Database) {
  const insertCheck = db.prepare(
    `INSERT INTO episode_checks (attemptId, episodeId, experimentId, checksVersion, findings, checkedAt)
     VALUES (@attemptId, @episodeId, @experimentId, @checksVersion, @findings, @at)
     ON CONFLICT (attemptId) DO UPDATE SET checksVersion = @checksVersion, findings = @findings, checkedAt = @at`,
  );
  const insertFinding = inserter(db, 'findings', findingColumns);
  const decideFinding = db.prepare(
    'UPDATE findings SET state = @decision, note = @note, decidedAt = @at WHERE findingId = @findingId',
  );
  const insertGate = inserter(db, 'gates', gateColumns);
  const decideGate = db.prepare(
    'UPDATE gates SET state = @decision, note = @note, decidedBy = @by, decidedAt = @at WHERE gateId = @gateId',
  );
  const projections = {
    'episode.checked': (event, { at }) => void insertCheck.run({ ...event, at }),
    'finding.recorded': (event, { at }) => void insertFinding.run({ ...event, recordedAt: at }),
    'finding.decided': (event, { at }) => void decideFinding.run({ ...event, at }),
    'gate.opened': (event, { at }) =>
      void insertGate.run({ ...event, aboutJson: JSON.stringify(event.about), openedAt: at }),
    'gate.decided': (event, { at }) => void decideGate.run({ ...event, at }),
  } satisfies Projections;

  const checkOf = db.prepare<[string], EpisodeCheckRow>('SELECT * FROM episode_checks WHERE attemptId = ?');
  const findings = db.prepare<[string], FindingRow>('SELECT * FROM findings WHERE experimentId = ? ORDER BY rowid');
  const ofEpisode = db.prepare<[string], FindingRow>('SELECT * FROM findings WHERE episodeId = ? ORDER BY rowid');
  const gates = db.prepare<[string], GateRow>('SELECT * FROM gates WHERE experimentId = ? ORDER BY rowid');
  return {
    projections,
    checkOf: (attemptId: string) => checkOf.get(attemptId),
    findings: (experimentId: string) => findings.all(experimentId),
    findingsOf: (episodeId: string) => ofEpisode.all(episodeId),
    /** In the order in which they were opened. */
    gates: (experimentId: string) => gates.all(experimentId),
  };
}
