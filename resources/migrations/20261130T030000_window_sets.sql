-- Windows rendered for training. The files lie in `folder`, relative to the data folder; their hashes are in the manifest.
CREATE TABLE window_sets (
  windowSetId TEXT PRIMARY KEY,
  experimentId TEXT NOT NULL REFERENCES experiments,
  cycle INTEGER NOT NULL,
  folder TEXT NOT NULL,
  manifestHash TEXT NOT NULL,
  modelSha256 TEXT NOT NULL,
  windows INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  labelledTokens INTEGER NOT NULL,
  renderedAt INTEGER NOT NULL
) STRICT;
CREATE INDEX window_sets_cycle ON window_sets (experimentId, cycle);
