-- Rows are the fold of `events`: every table below except `artifacts` can be rebuilt from the log.
-- Bodies are artifact hashes (sha256, hex). Times are milliseconds since 1970, UTC. Columns are named as in the events.

CREATE TABLE events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  type TEXT NOT NULL,
  experimentId TEXT,
  payload TEXT NOT NULL
) STRICT;
CREATE INDEX events_experiment ON events (experimentId, seq);

-- Content-addressed bodies, compressed. Small ones live here, large ones in artifacts/<2 hex>/<hash>.
CREATE TABLE artifacts (
  hash TEXT PRIMARY KEY,
  bytes INTEGER NOT NULL,
  storedBytes INTEGER NOT NULL,
  body BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE experiments (
  experimentId TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  configJson TEXT NOT NULL,
  configHash TEXT NOT NULL,
  massVersion TEXT NOT NULL,
  createdAt INTEGER NOT NULL
) STRICT;

CREATE TABLE models (
  modelId TEXT PRIMARY KEY,
  path TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  architecture TEXT NOT NULL,
  source TEXT NOT NULL,
  registeredAt INTEGER NOT NULL
) STRICT;

CREATE TABLE generations (
  generationId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  number INTEGER NOT NULL,
  modelId TEXT NOT NULL,
  modelSha256 TEXT NOT NULL,
  parentGenerationId TEXT,
  adapterSha256 TEXT,
  registeredAt INTEGER NOT NULL,
  UNIQUE (experimentId, number)
) STRICT;

CREATE TABLE tasks (
  experimentId TEXT NOT NULL REFERENCES experiments,
  taskId TEXT NOT NULL,
  number INTEGER NOT NULL,
  title TEXT NOT NULL,
  domain TEXT NOT NULL,
  split TEXT NOT NULL,
  contentHash TEXT NOT NULL,
  manifestHash TEXT NOT NULL,
  promptHash TEXT NOT NULL,
  folder TEXT NOT NULL,
  PRIMARY KEY (experimentId, taskId),
  UNIQUE (experimentId, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
  runId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  stagesJson TEXT NOT NULL,
  tasksJson TEXT,
  enginePid INTEGER NOT NULL,
  state TEXT NOT NULL,
  message TEXT NOT NULL,
  errorJson TEXT,
  startedAt INTEGER NOT NULL,
  endedAt INTEGER
) STRICT;
CREATE INDEX runs_experiment ON runs (experimentId, startedAt);

CREATE TABLE stages (
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  stage TEXT NOT NULL,
  runId TEXT NOT NULL,
  state TEXT NOT NULL,
  message TEXT NOT NULL,
  startedAt INTEGER NOT NULL,
  endedAt INTEGER,
  PRIMARY KEY (experimentId, cycle, stage)
) STRICT, WITHOUT ROWID;

CREATE TABLE notices (
  seq INTEGER PRIMARY KEY,
  experimentId TEXT,
  level TEXT NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;

CREATE TABLE workflows (
  workflowId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  version INTEGER NOT NULL,
  parentVersion INTEGER,
  author TEXT NOT NULL,
  status TEXT NOT NULL,
  blockHash TEXT,
  partsJson TEXT NOT NULL,
  proposalId TEXT,
  note TEXT NOT NULL,
  addedAt INTEGER NOT NULL,
  UNIQUE (experimentId, cycle, taskId, version)
) STRICT;

CREATE TABLE proposals (
  proposalId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  version INTEGER NOT NULL,
  basedOn INTEGER NOT NULL,
  valid INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  contentHash TEXT NOT NULL,
  promptSha256 TEXT NOT NULL,
  recordedAt INTEGER NOT NULL,
  UNIQUE (experimentId, cycle, taskId, version)
) STRICT;

CREATE TABLE champions (
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  policy TEXT NOT NULL,
  version INTEGER NOT NULL,
  provenWin INTEGER NOT NULL,
  decidedAt INTEGER NOT NULL,
  PRIMARY KEY (experimentId, cycle, taskId)
) STRICT, WITHOUT ROWID;

CREATE TABLE episodes (
  episodeId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  stage TEXT NOT NULL,
  taskId TEXT NOT NULL,
  workflowVersion INTEGER,
  replicate INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  plannedAt INTEGER NOT NULL
) STRICT;
-- NULL workflowVersion (the bare prompt) must be one key too, hence the expression.
CREATE UNIQUE INDEX episodes_key ON episodes (experimentId, cycle, stage, taskId, ifnull(workflowVersion, -1), replicate);

CREATE TABLE attempts (
  attemptId TEXT PRIMARY KEY,
  episodeId TEXT NOT NULL REFERENCES episodes,
  experimentId TEXT NOT NULL REFERENCES experiments,
  number INTEGER NOT NULL,
  generationId TEXT NOT NULL,
  workspace TEXT NOT NULL,
  sandboxMode TEXT NOT NULL,
  promptHash TEXT NOT NULL,
  inputsHash TEXT NOT NULL,
  runtime TEXT NOT NULL,
  runtimePromptsJson TEXT NOT NULL,
  outcome TEXT,
  haltReason TEXT,
  ending TEXT NOT NULL DEFAULT '',
  turns INTEGER NOT NULL DEFAULT 0,
  delegations INTEGER NOT NULL DEFAULT 0,
  toolCalls INTEGER NOT NULL DEFAULT 0,
  promptTokens INTEGER NOT NULL DEFAULT 0,
  generatedTokens INTEGER NOT NULL DEFAULT 0,
  bodyHash TEXT,
  filesHash TEXT,
  workspaceBytes INTEGER NOT NULL DEFAULT 0,
  pruned INTEGER NOT NULL DEFAULT 0,
  startedAt INTEGER NOT NULL,
  endedAt INTEGER,
  UNIQUE (episodeId, number)
) STRICT;
CREATE INDEX attempts_experiment ON attempts (experimentId, outcome);

CREATE TABLE threads (
  threadId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  ownerKind TEXT NOT NULL,
  ownerId TEXT NOT NULL,
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  parentThreadId TEXT,
  parentCallId TEXT,
  assignmentHash TEXT,
  outcome TEXT,
  startedAt INTEGER NOT NULL,
  endedAt INTEGER
) STRICT;
CREATE INDEX threads_owner ON threads (ownerKind, ownerId);

CREATE TABLE completions (
  completionId TEXT PRIMARY KEY,
  requestId TEXT NOT NULL UNIQUE,
  experimentId TEXT NOT NULL REFERENCES experiments,
  threadId TEXT NOT NULL REFERENCES threads,
  parentCompletionId TEXT,
  parentPrefix INTEGER NOT NULL,
  promptTailHash TEXT NOT NULL,
  promptTokens INTEGER NOT NULL,
  sampledHash TEXT NOT NULL,
  messagePrefix INTEGER NOT NULL,
  messagesTailHash TEXT NOT NULL,
  conversationHash TEXT NOT NULL,
  toolsHash TEXT,
  answerHash TEXT NOT NULL,
  finishReason TEXT NOT NULL,
  samplingJson TEXT NOT NULL,
  cachedTokens INTEGER NOT NULL,
  evaluatedTokens INTEGER NOT NULL,
  completionTokens INTEGER NOT NULL,
  ledgerMisses INTEGER NOT NULL,
  resumedAtJson TEXT NOT NULL,
  modelSha256 TEXT NOT NULL,
  adapterSha256 TEXT,
  queueMs REAL NOT NULL,
  prefillMs REAL NOT NULL,
  decodeMs REAL NOT NULL,
  recordedAt INTEGER NOT NULL
) STRICT;
CREATE INDEX completions_thread ON completions (threadId, recordedAt);
CREATE INDEX completions_experiment ON completions (experimentId);

CREATE TABLE tool_calls (
  seq INTEGER PRIMARY KEY,
  experimentId TEXT NOT NULL,
  threadId TEXT NOT NULL REFERENCES threads,
  callId TEXT NOT NULL,
  name TEXT NOT NULL,
  argumentsHash TEXT NOT NULL,
  resultHash TEXT NOT NULL,
  shownHash TEXT NOT NULL,
  exitCode INTEGER,
  durationMs REAL NOT NULL,
  failed INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX tool_calls_thread ON tool_calls (threadId, seq);

CREATE TABLE judgments (
  judgmentId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  stage TEXT NOT NULL,
  purpose TEXT NOT NULL,
  taskId TEXT NOT NULL,
  firstEpisodeId TEXT NOT NULL REFERENCES episodes,
  secondEpisodeId TEXT NOT NULL REFERENCES episodes,
  orders INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  result TEXT,
  invalidPresentations INTEGER NOT NULL DEFAULT 0,
  openedAt INTEGER NOT NULL,
  decidedAt INTEGER,
  UNIQUE (experimentId, cycle, stage, purpose, taskId, firstEpisodeId, secondEpisodeId)
) STRICT;

CREATE TABLE presentations (
  presentationId TEXT PRIMARY KEY,
  judgmentId TEXT NOT NULL REFERENCES judgments,
  experimentId TEXT NOT NULL,
  shownAsA TEXT NOT NULL,
  seed INTEGER NOT NULL,
  verdict TEXT NOT NULL,
  valid INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  contentHash TEXT NOT NULL,
  promptSha256 TEXT NOT NULL,
  firstEvidenceHash TEXT NOT NULL,
  secondEvidenceHash TEXT NOT NULL,
  recordedAt INTEGER NOT NULL,
  UNIQUE (judgmentId, shownAsA)
) STRICT;

CREATE TABLE matches (
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  matchIndex INTEGER NOT NULL,
  firstEpisodeId TEXT NOT NULL,
  secondEpisodeId TEXT NOT NULL,
  seed INTEGER NOT NULL,
  PRIMARY KEY (experimentId, cycle, taskId, matchIndex)
) STRICT, WITHOUT ROWID;

CREATE TABLE ratings (
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  method TEXT NOT NULL,
  episodeId TEXT NOT NULL,
  rank INTEGER NOT NULL,
  score REAL NOT NULL,
  standardError REAL,
  wins REAL NOT NULL,
  matches INTEGER NOT NULL,
  PRIMARY KEY (experimentId, cycle, taskId, method, episodeId)
) STRICT, WITHOUT ROWID;

CREATE TABLE selections (
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  provenWin INTEGER NOT NULL,
  flagged INTEGER NOT NULL,
  flagJson TEXT NOT NULL,
  selectedAt INTEGER NOT NULL,
  PRIMARY KEY (experimentId, cycle, taskId)
) STRICT, WITHOUT ROWID;

CREATE TABLE selection_entries (
  experimentId TEXT NOT NULL,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  episodeId TEXT NOT NULL,
  rank INTEGER NOT NULL,
  decision TEXT NOT NULL,
  PRIMARY KEY (experimentId, cycle, taskId, episodeId)
) STRICT, WITHOUT ROWID;

CREATE TABLE exclusions (
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  taskId TEXT NOT NULL,
  stage TEXT NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (experimentId, cycle, taskId, stage)
) STRICT, WITHOUT ROWID;
