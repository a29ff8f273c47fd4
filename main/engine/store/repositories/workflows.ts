import type Database from 'better-sqlite3';
import { bit, inserter, type Projections } from '../projection.ts';
import type { CycleKey, TaskKey } from './tasks.ts';

export interface WorkflowRow {
  readonly workflowId: string;
  readonly taskId: string;
  readonly version: number;
  readonly parentVersion: number | null;
  readonly author: 'seed' | 'proposer' | 'person';
  readonly status: 'proposed' | 'proposal_failed';
  readonly blockHash: string | null;
  readonly partsJson: string;
  readonly proposalId: string | null;
  readonly note: string;
  readonly addedAt: number;
}
export interface ProposalRow {
  readonly proposalId: string;
  readonly taskId: string;
  readonly version: number;
  readonly basedOn: number;
  readonly valid: 0 | 1;
  readonly tries: number;
  readonly seed: number;
  readonly contentHash: string;
}
export interface ChampionRow {
  readonly taskId: string;
  readonly policy: string;
  readonly version: number;
  readonly provenWin: 0 | 1;
}

const workflowColumns = [
  'workflowId',
  'experimentId',
  'cycle',
  'taskId',
  'version',
  'parentVersion',
  'author',
  'status',
  'blockHash',
  'partsJson',
  'proposalId',
  'note',
  'addedAt',
];
const proposalColumns = [
  'proposalId',
  'experimentId',
  'cycle',
  'taskId',
  'version',
  'basedOn',
  'valid',
  'tries',
  'seed',
  'contentHash',
  'promptSha256',
  'recordedAt',
];

/** Workflow versions of a task's search, the proposals behind them, and the champion. */
export function workflowRepository(db: Database.Database) {
  const insertWorkflow = inserter(db, 'workflows', workflowColumns);
  const insertProposal = inserter(db, 'proposals', proposalColumns);
  const decide = db.prepare(
    `INSERT INTO champions (experimentId, cycle, taskId, policy, version, provenWin, decidedAt)
     VALUES (@experimentId, @cycle, @taskId, @policy, @version, @provenWin, @at)
     ON CONFLICT (experimentId, cycle, taskId) DO UPDATE SET version = @version, provenWin = @provenWin, decidedAt = @at`,
  );
  const projections = {
    'workflow.added': (event, { at }) => void insertWorkflow.run({ ...event, addedAt: at }),
    'proposal.recorded': (event, { at }) =>
      void insertProposal.run({ ...event, valid: bit(event.valid), recordedAt: at }),
    'champion.decided': (event, { at }) => void decide.run({ ...event, provenWin: bit(event.provenWin), at }),
  } satisfies Projections;
  const ofTask = db.prepare<TaskKey, WorkflowRow>(
    'SELECT * FROM workflows WHERE experimentId = @experimentId AND cycle = @cycle AND taskId = @taskId ORDER BY version',
  );
  const proposals = db.prepare<TaskKey, ProposalRow>(
    'SELECT * FROM proposals WHERE experimentId = @experimentId AND cycle = @cycle AND taskId = @taskId ORDER BY version',
  );
  const champions = db.prepare<CycleKey, ChampionRow>(
    'SELECT * FROM champions WHERE experimentId = @experimentId AND cycle = @cycle',
  );
  return {
    projections,
    ofTask: (key: TaskKey) => ofTask.all(key),
    proposals: (key: TaskKey) => proposals.all(key),
    champions: (key: CycleKey) => champions.all(key),
    champion: (key: TaskKey) => champions.all(key).find((row) => row.taskId === key.taskId),
  };
}
