-- The model card of a generation that was trained here, as an artifact.
ALTER TABLE generations ADD COLUMN cardHash TEXT;
