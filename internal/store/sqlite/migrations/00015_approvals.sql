-- +goose Up
-- +goose StatementBegin
-- Tool calls that wait for the approval of a person, and those that were decided. The facts of
-- their runs say the same: see run.Head.ApprovalChanges.
CREATE TABLE approvals (
  org         TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  run_id      TEXT    NOT NULL,
  call_key    TEXT    NOT NULL,
  principal   TEXT    NOT NULL, -- whose run it is
  surface     TEXT    NOT NULL,
  name        TEXT    NOT NULL, -- of the tool, as the model called it
  server      TEXT    NOT NULL,
  tool        TEXT    NOT NULL,
  asker       TEXT    NOT NULL, -- server or request
  tool_digest TEXT    NOT NULL,
  args_ref    TEXT    NOT NULL, -- of a row of the run
  args_digest TEXT    NOT NULL,
  policy      TEXT    NOT NULL, -- digest of the rules that asked
  status      TEXT    NOT NULL, -- waiting, approved, denied, expired, void
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL, -- 0 = never
  decided_at  INTEGER NOT NULL DEFAULT 0,
  decided_by  TEXT    NOT NULL DEFAULT '',
  reason      TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX approvals_run ON approvals (org, run_id);
CREATE INDEX approvals_latest ON approvals (org, created_at, id);
CREATE INDEX approvals_waiting ON approvals (org, created_at, id) WHERE status = 'waiting';
CREATE INDEX approvals_due ON approvals (expires_at) WHERE status = 'waiting' AND expires_at > 0;

ALTER TABLE runs ADD COLUMN waits INTEGER NOT NULL DEFAULT 0; -- approvals that are not decided
ALTER TABLE runs ADD COLUMN slots INTEGER NOT NULL DEFAULT 0; -- runs of the org that may run at a time; 0 = no limit
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE runs DROP COLUMN slots;
ALTER TABLE runs DROP COLUMN waits;
DROP TABLE approvals;
-- +goose StatementEnd
