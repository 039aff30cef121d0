-- +goose Up
-- +goose StatementBegin
-- What hooks are told after their runs, one row for each run and hook. The rowid grows with the time.
CREATE TABLE hook_messages (
  org           TEXT    NOT NULL,
  id            TEXT    NOT NULL, -- the webhook-id
  run_id        TEXT    NOT NULL,
  hook          TEXT    NOT NULL,
  agent         INTEGER NOT NULL, -- 1 = the hook belongs to the agent of the run
  position      INTEGER NOT NULL,
  answer_ref    TEXT    NOT NULL, -- a ref in run_rows; '' = nothing is stored of the answer
  at            INTEGER NOT NULL, -- when the run ended
  outcome       TEXT    NOT NULL DEFAULT 'waiting', -- waiting, succeeded, failed, timed_out, given_up
  claimed_until INTEGER NOT NULL DEFAULT 0,
  ended_at      INTEGER NOT NULL DEFAULT 0, -- 0 = it waits
  micros        INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX hook_messages_of_run ON hook_messages (org, run_id);
CREATE INDEX hook_messages_waiting ON hook_messages (org, hook, claimed_until) WHERE ended_at = 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE hook_messages;
-- +goose StatementEnd
