-- Trainings of a cycle, and how one of their checkpoints becomes a generation.
CREATE TABLE trainings (
  trainingId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  parentGenerationId TEXT NOT NULL,
  windowSetId TEXT NOT NULL,
  folder TEXT NOT NULL,
  orderHash TEXT NOT NULL,
  fromStep INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  startedAt INTEGER NOT NULL,
  state TEXT NOT NULL, -- running, finished, stopped, diverged, failed
  step INTEGER NOT NULL,
  message TEXT NOT NULL,
  endedAt INTEGER
) STRICT;
CREATE INDEX trainings_cycle ON trainings (experimentId, cycle);

-- A step after the checkpoint a training goes on from is written again.
CREATE TABLE training_steps (
  trainingId TEXT NOT NULL REFERENCES trainings,
  step INTEGER NOT NULL,
  loss REAL NOT NULL,
  learningRate REAL NOT NULL,
  gradNorm REAL NOT NULL,
  windowsJson TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  labelledTokens INTEGER NOT NULL,
  seconds REAL NOT NULL,
  peakBytes INTEGER NOT NULL,
  PRIMARY KEY (trainingId, step)
) STRICT;
CREATE TABLE training_validations (
  trainingId TEXT NOT NULL REFERENCES trainings,
  step INTEGER NOT NULL,
  loss REAL,
  labelledTokens INTEGER NOT NULL,
  PRIMARY KEY (trainingId, step)
) STRICT;
CREATE TABLE checkpoints (
  trainingId TEXT NOT NULL REFERENCES trainings,
  step INTEGER NOT NULL,
  folder TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  adapterSha256 TEXT NOT NULL,
  PRIMARY KEY (trainingId, step)
) STRICT;
CREATE TABLE checkpoint_choices (
  trainingId TEXT PRIMARY KEY REFERENCES trainings,
  step INTEGER NOT NULL,
  loss REAL,
  chosenBy TEXT NOT NULL,
  note TEXT NOT NULL,
  chosenAt INTEGER NOT NULL
) STRICT;
CREATE TABLE exported_adapters (
  trainingId TEXT NOT NULL REFERENCES trainings,
  step INTEGER NOT NULL,
  adapterSha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  exportedAt INTEGER NOT NULL,
  PRIMARY KEY (trainingId, step)
) STRICT;
CREATE TABLE parities (
  trainingId TEXT NOT NULL REFERENCES trainings,
  step INTEGER NOT NULL,
  adapterSha256 TEXT NOT NULL,
  passed INTEGER NOT NULL,
  reportHash TEXT NOT NULL,
  measuredAt INTEGER NOT NULL,
  PRIMARY KEY (trainingId, step)
) STRICT;
