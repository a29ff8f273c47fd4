import type Database from 'better-sqlite3';
import type { OwnerKind } from '../../../common/domain/events.ts';
import { bit, inserter, type Projections } from '../projection.ts';

export interface ThreadRow {
  readonly threadId: string;
  readonly experimentId: string;
  readonly ownerKind: OwnerKind;
  readonly ownerId: string;
  readonly role: 'orchestrator' | 'worker' | 'evaluator' | 'proposer';
  readonly name: string;
  readonly parentThreadId: string | null;
  readonly parentCallId: string | null;
  readonly assignmentHash: string | null;
  readonly outcome: string | null;
  readonly startedAt: number;
  readonly endedAt: number | null;
}
export interface CompletionRow {
  readonly completionId: string;
  readonly requestId: string;
  readonly experimentId: string;
  readonly threadId: string;
  readonly parentCompletionId: string | null;
  readonly parentPrefix: number;
  readonly promptTailHash: string;
  readonly promptTokens: number;
  readonly sampledHash: string;
  readonly messagePrefix: number;
  readonly messagesTailHash: string;
  readonly conversationHash: string;
  readonly toolsHash: string | null;
  readonly answerHash: string;
  readonly finishReason: string;
  readonly samplingJson: string;
  readonly cachedTokens: number;
  readonly evaluatedTokens: number;
  readonly completionTokens: number;
  readonly ledgerMisses: number;
  readonly resumedAtJson: string;
  readonly modelSha256: string;
  readonly adapterSha256: string | null;
  readonly queueMs: number;
  readonly prefillMs: number;
  readonly decodeMs: number;
  readonly recordedAt: number;
}
export interface ToolCallRow {
  readonly seq: number;
  readonly threadId: string;
  readonly callId: string;
  readonly name: string;
  readonly argumentsHash: string;
  readonly resultHash: string;
  readonly shownHash: string;
  readonly exitCode: number | null;
  readonly durationMs: number;
  readonly failed: 0 | 1;
  readonly at: number;
}
/** Tokens and milliseconds spent on completions. */
export interface TokenTotals {
  readonly completions: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly evaluatedTokens: number;
  readonly completionTokens: number;
  readonly ledgerMisses: number;
  readonly prefillMs: number;
  readonly decodeMs: number;
}

/** Sums over the completions of one kind of owner. */
export interface OwnerCosts {
  readonly ownerKind: OwnerKind;
  readonly owners: number;
  readonly evaluatedTokens: number;
  readonly completionTokens: number;
}

const threadColumns = [
  'threadId',
  'experimentId',
  'ownerKind',
  'ownerId',
  'role',
  'name',
  'parentThreadId',
  'parentCallId',
  'assignmentHash',
  'startedAt',
];
const completionColumns = [
  'completionId',
  'requestId',
  'experimentId',
  'threadId',
  'parentCompletionId',
  'parentPrefix',
  'promptTailHash',
  'promptTokens',
  'sampledHash',
  'messagePrefix',
  'messagesTailHash',
  'conversationHash',
  'toolsHash',
  'answerHash',
  'finishReason',
  'samplingJson',
  'cachedTokens',
  'evaluatedTokens',
  'completionTokens',
  'ledgerMisses',
  'resumedAtJson',
  'modelSha256',
  'adapterSha256',
  'queueMs',
  'prefillMs',
  'decodeMs',
  'recordedAt',
];
const toolCallColumns = [
  'seq',
  'experimentId',
  'threadId',
  'callId',
  'name',
  'argumentsHash',
  'resultHash',
  'shownHash',
  'exitCode',
  'durationMs',
  'failed',
  'at',
];

/** Conversations: threads, their completions and tool calls. */
export function threadRepository(db: Database.Database) {
  const insertThread = inserter(db, 'threads', threadColumns);
  const endThread = db.prepare('UPDATE threads SET outcome = @outcome, endedAt = @at WHERE threadId = @threadId');
  const insertCompletion = inserter(db, 'completions', completionColumns);
  const insertToolCall = inserter(db, 'tool_calls', toolCallColumns);
  const projections = {
    'thread.started': (event, { at }) => void insertThread.run({ ...event, startedAt: at }),
    'thread.ended': (event, { at }) => void endThread.run({ ...event, at }),
    'completion.recorded': (event, { at }) => {
      const { cachedTokens, evaluatedTokens, completionTokens } = event.usage;
      insertCompletion.run({
        ...event,
        cachedTokens,
        evaluatedTokens,
        completionTokens,
        samplingJson: JSON.stringify(event.sampling),
        resumedAtJson: JSON.stringify(event.resumedAt),
        // objects and arrays are not bindable; the columns above hold them
        usage: null,
        sampling: null,
        resumedAt: null,
        recordedAt: at,
      });
    },
    'tool.ran': (event, { seq, at }) => void insertToolCall.run({ ...event, failed: bit(event.failed), seq, at }),
  } satisfies Projections;

  const ofOwner = db.prepare<[string, string], ThreadRow>(
    'SELECT * FROM threads WHERE ownerKind = ? AND ownerId = ? ORDER BY startedAt, threadId',
  );
  const byId = db.prepare<[string], ThreadRow>('SELECT * FROM threads WHERE threadId = ?');
  const completions = db.prepare<[string], CompletionRow>(
    'SELECT * FROM completions WHERE threadId = ? ORDER BY recordedAt, rowid',
  );
  const completionsOfOwner = db.prepare<[string, string], CompletionRow>(
    `SELECT c.* FROM completions c JOIN threads t ON t.threadId = c.threadId WHERE t.ownerKind = ? AND t.ownerId = ?
     ORDER BY c.recordedAt, c.rowid`,
  );
  const completionById = db.prepare<[string], CompletionRow>('SELECT * FROM completions WHERE completionId = ?');
  const completionByRequest = db.prepare<[string], CompletionRow>('SELECT * FROM completions WHERE requestId = ?');
  const toolCalls = db.prepare<[string], ToolCallRow>('SELECT * FROM tool_calls WHERE threadId = ? ORDER BY seq');
  const totals = db.prepare<[string], TokenTotals>(
    `SELECT count(*) AS completions, ifnull(sum(promptTokens), 0) AS promptTokens, ifnull(sum(cachedTokens), 0) AS cachedTokens,
       ifnull(sum(evaluatedTokens), 0) AS evaluatedTokens, ifnull(sum(completionTokens), 0) AS completionTokens,
       ifnull(sum(ledgerMisses), 0) AS ledgerMisses, ifnull(sum(prefillMs), 0) AS prefillMs, ifnull(sum(decodeMs), 0) AS decodeMs
     FROM completions WHERE experimentId = ?`,
  );
  const costs = db.prepare<[string], OwnerCosts>(
    `SELECT t.ownerKind AS ownerKind, count(DISTINCT t.ownerId) AS owners, sum(c.evaluatedTokens) AS evaluatedTokens,
       sum(c.completionTokens) AS completionTokens
     FROM completions c JOIN threads t ON t.threadId = c.threadId WHERE c.experimentId = ? GROUP BY t.ownerKind`,
  );
  return {
    projections,
    costs: (experimentId: string) => costs.all(experimentId),
    ofOwner: (kind: OwnerKind, ownerId: string) => ofOwner.all(kind, ownerId),
    byId: (threadId: string) => byId.get(threadId),
    completions: (threadId: string) => completions.all(threadId),
    /** Of all threads of an owner, in the order of recording. */
    completionsOfOwner: (kind: OwnerKind, ownerId: string) => completionsOfOwner.all(kind, ownerId),
    completionById: (completionId: string) => completionById.get(completionId),
    completionByRequest: (requestId: string) => completionByRequest.get(requestId),
    toolCalls: (threadId: string) => toolCalls.all(threadId),
    totals: (experimentId: string): TokenTotals => totals.get(experimentId) as TokenTotals,
  };
}
