-- What deterministic checks found in workspaces, what a person decided, and the stops for one.

CREATE TABLE episode_checks (
  attemptId TEXT PRIMARY KEY REFERENCES attempts,
  episodeId TEXT NOT NULL REFERENCES episodes,
  experimentId TEXT NOT NULL REFERENCES experiments,
  checksVersion INTEGER NOT NULL,
  findings INTEGER NOT NULL,
  checkedAt INTEGER NOT NULL
) STRICT;

CREATE TABLE findings (
  findingId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  episodeId TEXT NOT NULL REFERENCES episodes,
  attemptId TEXT NOT NULL REFERENCES attempts,
  checkId TEXT NOT NULL,
  severity TEXT NOT NULL,
  path TEXT NOT NULL,
  message TEXT NOT NULL,
  detailsJson TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'open',
  note TEXT NOT NULL DEFAULT '',
  recordedAt INTEGER NOT NULL,
  decidedAt INTEGER,
  UNIQUE (attemptId, checkId, path)
) STRICT;
CREATE INDEX findings_experiment ON findings (experimentId, state);
CREATE INDEX findings_episode ON findings (episodeId);

CREATE TABLE gates (
  gateId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  kind TEXT NOT NULL,
  runId TEXT NOT NULL,
  aboutJson TEXT NOT NULL,
  message TEXT NOT NULL,
  detailsJson TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'open',
  note TEXT NOT NULL DEFAULT '',
  decidedBy TEXT,
  openedAt INTEGER NOT NULL,
  decidedAt INTEGER
) STRICT;
CREATE INDEX gates_experiment ON gates (experimentId, cycle, kind);

-- Ranked runs that findings kept out of the cut.
ALTER TABLE selections ADD COLUMN leftOutJson TEXT NOT NULL DEFAULT '[]';
