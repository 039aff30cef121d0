-- +goose Up
-- +goose StatementBegin
CREATE TABLE audit_log (
  org        TEXT    NOT NULL,
  n          INTEGER NOT NULL, -- 1, 2, 3 … in the org, without gaps
  at         INTEGER NOT NULL,
  kind       TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  run_id     TEXT    NOT NULL, -- empty for a relay
  request_id TEXT    NOT NULL,
  body       TEXT    NOT NULL, -- JSON
  hash       BLOB    NOT NULL, -- of the row and the hash of the row before
  PRIMARY KEY (org, n)
) STRICT, WITHOUT ROWID;
-- Also finds a run: its requests are the run's id, with and without .n.
CREATE INDEX audit_log_request ON audit_log (org, request_id);
CREATE INDEX audit_log_at ON audit_log (org, at);

-- Signed with a key that is not in this file. Of several at one row, all count.
CREATE TABLE audit_checkpoints (
  org       TEXT    NOT NULL,
  n         INTEGER NOT NULL, -- the last row that it speaks of
  cut       INTEGER NOT NULL, -- 1: the rows up to n are gone
  at        INTEGER NOT NULL,
  hash      BLOB    NOT NULL,
  signature BLOB    NOT NULL,
  PRIMARY KEY (org, n, cut)
) STRICT;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE audit_checkpoints;
DROP TABLE audit_log;
-- +goose StatementEnd
