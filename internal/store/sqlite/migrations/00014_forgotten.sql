-- +goose Up
-- +goose StatementBegin
-- Runs that are deleted when they have ended.
CREATE TABLE forgotten_runs (
  org    TEXT NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;

-- A run is kept as long as its key.
CREATE INDEX submit_keys_run ON submit_keys (org, run_id);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX submit_keys_run;
DROP TABLE forgotten_runs;
-- +goose StatementEnd
