-- The org comes first in every key. Times are Unix milliseconds; 0 = never.

-- +goose Up
-- +goose StatementBegin
-- A run that is running and whose lease has ended is there to be claimed.
ALTER TABLE runs ADD COLUMN owner       TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN lease_until INTEGER NOT NULL DEFAULT 0;

-- Without lease_until, which every append changes: what is running is few, so
-- that an org's leases are counted by looking at each.
CREATE INDEX runs_running ON runs (org, created_at, run_id) WHERE status = 'running';

CREATE TABLE submit_keys (
  org        TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  hash       TEXT    NOT NULL, -- of the request
  run_id     TEXT    NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, principal, key)
) STRICT;
CREATE INDEX submit_keys_expire ON submit_keys (expires_at);

-- Held is the sum of the holds in the scope, for as long as they are open.
CREATE TABLE budgets (
  org            TEXT    NOT NULL,
  scope          TEXT    NOT NULL,
  spent_tokens   INTEGER NOT NULL,
  spent_nano_usd INTEGER NOT NULL,
  held_tokens    INTEGER NOT NULL,
  held_nano_usd  INTEGER NOT NULL,
  PRIMARY KEY (org, scope)
) STRICT;

CREATE TABLE holds (
  org      TEXT    NOT NULL,
  run_id   TEXT    NOT NULL,
  id       TEXT    NOT NULL,
  scope    TEXT    NOT NULL,
  tokens   INTEGER NOT NULL,
  nano_usd INTEGER NOT NULL,
  epoch    INTEGER NOT NULL, -- of the lease that it was set aside under
  PRIMARY KEY (org, run_id, id, scope),
  FOREIGN KEY (org, scope) REFERENCES budgets (org, scope)
) STRICT;

-- What is written to see whether there is room: one row, which nobody reads.
CREATE TABLE probes (
  id   INTEGER NOT NULL PRIMARY KEY,
  body BLOB    NOT NULL
) STRICT;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE probes;
DROP TABLE holds;
DROP TABLE budgets;
DROP TABLE submit_keys;
DROP INDEX runs_running;
ALTER TABLE runs DROP COLUMN lease_until;
ALTER TABLE runs DROP COLUMN owner;
-- +goose StatementEnd
