-- Sums the bodies that are files without reading the ones that are not.
CREATE INDEX artifactFiles ON artifacts (storedBytes) WHERE body IS NULL;
