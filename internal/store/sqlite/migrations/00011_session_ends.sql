-- +goose Up
-- +goose StatementBegin
-- Runs that had not ended when their session was deleted, until somebody has asked them to end.
CREATE TABLE orphaned_runs (
  org    TEXT NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;
CREATE TRIGGER session_turns_orphan AFTER DELETE ON session_turns BEGIN
  INSERT OR IGNORE INTO orphaned_runs (org, run_id)
    SELECT org, run_id FROM runs WHERE org = old.org AND run_id = old.run_id AND status <> 'done';
END;

-- Sums over the runs of a session that have ended.
ALTER TABLE sessions ADD COLUMN active_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost_nano_usd INTEGER NOT NULL DEFAULT 0; -- of the runs whose cost is known
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE sessions DROP COLUMN cost_nano_usd;
ALTER TABLE sessions DROP COLUMN active_ms;
DROP TRIGGER session_turns_orphan;
DROP TABLE orphaned_runs;
-- +goose StatementEnd
