-- Rollouts for reporting, their comparison, and runs over several cycles.

CREATE TABLE rollout_sets (
  setId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  generationId TEXT NOT NULL REFERENCES generations,
  generation INTEGER NOT NULL,
  name TEXT NOT NULL,
  taskIdsJson TEXT NOT NULL,
  count INTEGER NOT NULL,
  seedBase INTEGER NOT NULL,
  createdAt INTEGER NOT NULL,
  membersHash TEXT,
  runs INTEGER,
  completed INTEGER,
  completedAt INTEGER,
  UNIQUE (generationId, name)
) STRICT;
CREATE INDEX rollout_sets_experiment ON rollout_sets (experimentId, name);

CREATE TABLE comparisons (
  comparisonId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  setName TEXT NOT NULL,
  firstSetId TEXT NOT NULL REFERENCES rollout_sets,
  firstGeneration INTEGER NOT NULL,
  secondSetId TEXT NOT NULL REFERENCES rollout_sets,
  secondGeneration INTEGER NOT NULL,
  evaluatorGenerationId TEXT NOT NULL REFERENCES generations,
  evaluatorGeneration INTEGER NOT NULL,
  orders INTEGER NOT NULL,
  pairs INTEGER NOT NULL,
  openedAt INTEGER NOT NULL,
  resultHash TEXT,
  completedAt INTEGER,
  UNIQUE (firstSetId, secondSetId, evaluatorGenerationId)
) STRICT;
CREATE INDEX comparisons_experiment ON comparisons (experimentId);

-- An episode's key includes its set; NULL (no set) must be one key too.
ALTER TABLE episodes ADD COLUMN setId TEXT REFERENCES rollout_sets;
DROP INDEX episodes_key;
CREATE UNIQUE INDEX episodes_key
  ON episodes (experimentId, cycle, stage, taskId, ifnull(workflowVersion, -1), replicate, ifnull(setId, ''));
CREATE INDEX episodes_set ON episodes (setId) WHERE setId IS NOT NULL;

ALTER TABLE runs ADD COLUMN cyclesJson TEXT;

-- A judgment's key includes its comparison, so that another evaluator can judge the same pair. A table's own UNIQUE
-- cannot be changed in place; parent and child are made anew in an order that leaves no dangling reference.
CREATE TABLE judgments_keyed (
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
  comparisonId TEXT REFERENCES comparisons,
  result TEXT,
  invalidPresentations INTEGER NOT NULL DEFAULT 0,
  openedAt INTEGER NOT NULL,
  decidedAt INTEGER
) STRICT;
INSERT INTO judgments_keyed (rowid, judgmentId, experimentId, cycle, stage, purpose, taskId, firstEpisodeId,
    secondEpisodeId, orders, seed, result, invalidPresentations, openedAt, decidedAt)
  SELECT rowid, judgmentId, experimentId, cycle, stage, purpose, taskId, firstEpisodeId, secondEpisodeId, orders, seed,
    result, invalidPresentations, openedAt, decidedAt FROM judgments;
CREATE TABLE presentations_keyed (
  presentationId TEXT PRIMARY KEY,
  judgmentId TEXT NOT NULL REFERENCES judgments_keyed,
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
INSERT INTO presentations_keyed (rowid, presentationId, judgmentId, experimentId, shownAsA, seed, verdict, valid, tries,
    contentHash, promptSha256, firstEvidenceHash, secondEvidenceHash, recordedAt)
  SELECT rowid, presentationId, judgmentId, experimentId, shownAsA, seed, verdict, valid, tries, contentHash,
    promptSha256, firstEvidenceHash, secondEvidenceHash, recordedAt FROM presentations;
DROP TABLE presentations;
DROP TABLE judgments;
ALTER TABLE judgments_keyed RENAME TO judgments;
ALTER TABLE presentations_keyed RENAME TO presentations;
CREATE UNIQUE INDEX judgments_key
  ON judgments (experimentId, cycle, stage, purpose, taskId, firstEpisodeId, secondEpisodeId, ifnull(comparisonId, ''));
CREATE INDEX judgments_comparison ON judgments (comparisonId) WHERE comparisonId IS NOT NULL;
