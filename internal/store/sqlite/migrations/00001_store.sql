-- The org comes first in every key. Times are Unix milliseconds; 0 = never.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE orgs (
  id         TEXT    NOT NULL PRIMARY KEY,
  features   TEXT    NOT NULL, -- JSON
  runtime    TEXT    NOT NULL, -- JSON
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id         TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  role       TEXT    NOT NULL,
  hash       BLOB    NOT NULL UNIQUE, -- SHA-256 of the key, which is not stored
  hint       TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT;

CREATE TABLE mcp_outbound_servers (
  org         TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name        TEXT    NOT NULL,
  url         TEXT    NOT NULL,
  enabled     INTEGER NOT NULL,
  tools       TEXT    NOT NULL, -- JSON; null = all
  headers     TEXT    NOT NULL, -- JSON; secrets by reference
  timeout_ms  INTEGER NOT NULL,
  max_retries INTEGER NOT NULL,
  required    INTEGER NOT NULL,
  trust       INTEGER NOT NULL,
  naming      TEXT    NOT NULL,
  prefix      TEXT    NOT NULL,
  polling     TEXT    NOT NULL, -- JSON
  position    INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;

-- A run's head: what its facts add up to. It outlives its org, and an org of
-- the configuration file has no row.
CREATE TABLE runs (
  org           TEXT    NOT NULL,
  run_id        TEXT    NOT NULL,
  principal     TEXT    NOT NULL,
  surface       TEXT    NOT NULL,
  grade         TEXT    NOT NULL,
  model         TEXT    NOT NULL,
  status        TEXT    NOT NULL, -- running, waiting, done
  finish_reason TEXT    NOT NULL, -- empty before
  rounds        INTEGER NOT NULL,
  calls         INTEGER NOT NULL,
  tokens        INTEGER NOT NULL,
  epoch         INTEGER NOT NULL, -- a writer with a lower one is fenced
  next_seq      INTEGER NOT NULL,
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  PRIMARY KEY (org, run_id)
) STRICT;
CREATE INDEX runs_latest ON runs (org, created_at, run_id);

-- With a rowid: bodies of a few KiB in a table without one cost twice the
-- space and half the speed.
CREATE TABLE run_facts (
  org      TEXT    NOT NULL,
  run_id   TEXT    NOT NULL,
  seq      INTEGER NOT NULL,
  epoch    INTEGER NOT NULL,
  kind     TEXT    NOT NULL,
  call_key TEXT, -- NULL for a fact about no call in particular
  attempt  INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  v        INTEGER NOT NULL,
  body     TEXT    NOT NULL, -- JSON
  PRIMARY KEY (org, run_id, seq),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX run_facts_call ON run_facts (org, run_id, kind, call_key, attempt) WHERE call_key IS NOT NULL;

CREATE TABLE run_rows (
  org    TEXT NOT NULL,
  run_id TEXT NOT NULL,
  ref    TEXT NOT NULL,
  body   TEXT NOT NULL, -- JSON
  PRIMARY KEY (org, run_id, ref),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;

-- A handover is stored once, under the least of the call ids that it gave out.
CREATE TABLE handovers (
  org        TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  id         TEXT    NOT NULL,
  run_id     TEXT    NOT NULL,
  body       TEXT    NOT NULL, -- JSON
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, principal, id)
) STRICT;
CREATE INDEX handovers_expire ON handovers (expires_at);

CREATE TABLE handover_calls (
  org       TEXT NOT NULL,
  principal TEXT NOT NULL,
  call_id   TEXT NOT NULL,
  handover  TEXT NOT NULL,
  PRIMARY KEY (org, principal, call_id),
  FOREIGN KEY (org, principal, handover) REFERENCES handovers (org, principal, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX handover_calls_handover ON handover_calls (org, principal, handover);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE handover_calls;
DROP TABLE handovers;
DROP TABLE run_rows;
DROP TABLE run_facts;
DROP TABLE runs;
DROP TABLE mcp_outbound_servers;
DROP TABLE api_keys;
DROP TABLE orgs;
-- +goose StatementEnd
