-- The org comes first in every key. Times are Unix milliseconds; 0 = never.
-- Secrets are stored by reference, or sealed.

-- +goose Up
-- +goose StatementBegin
PRAGMA application_id = 1414541361; -- "TP01": see schema.go

-- Orgs of the configuration file have no row.
CREATE TABLE orgs (
  id         TEXT    NOT NULL PRIMARY KEY,
  features   TEXT    NOT NULL, -- JSON
  runtime    TEXT    NOT NULL, -- JSON
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

-- Orgs that were deleted and of which something is stored that retention has to delete.
CREATE TABLE deleted_orgs (
  org        TEXT    NOT NULL PRIMARY KEY,
  deleted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
  org                 TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id                  TEXT    NOT NULL,
  name                TEXT    NOT NULL,
  role                TEXT    NOT NULL,
  hash                BLOB    NOT NULL UNIQUE, -- SHA-256 of the key, which is not stored
  hint                TEXT    NOT NULL,
  created_at          INTEGER NOT NULL,
  revoked_at          INTEGER NOT NULL,
  requests_per_minute INTEGER NOT NULL DEFAULT 0, -- 0 = no limit
  burst               INTEGER NOT NULL DEFAULT 0, -- 0 = as many as requests_per_minute
  access              TEXT    NOT NULL DEFAULT '{}', -- JSON: what the key may use
  expires_at          INTEGER NOT NULL DEFAULT 0, -- 0 = never
  previous_hash       BLOB, -- of the secret before the latest rotation
  previous_hint       TEXT    NOT NULL DEFAULT '',
  previous_until      INTEGER NOT NULL DEFAULT 0, -- when it ends; 0 = there is none
  PRIMARY KEY (org, id)
) STRICT;
CREATE INDEX api_keys_working ON api_keys (org) WHERE revoked_at = 0;
CREATE INDEX api_keys_revoked ON api_keys (org, revoked_at) WHERE revoked_at > 0;

-- The settings are one JSON object, so that a new setting needs no migration.
CREATE TABLE mcp_outbound_servers (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       TEXT    NOT NULL,
  position   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  settings   TEXT    NOT NULL DEFAULT '{}', -- JSON
  PRIMARY KEY (org, name)
) STRICT;

-- Servers that the configuration file shares among orgs and that an org has switched off.
CREATE TABLE mcp_servers_off (
  org  TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE secrets (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       TEXT    NOT NULL,
  sealed     BLOB    NOT NULL, -- opens with the operator's master key, under this org and name only
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;

-- The head of a run: the sum of its facts. It outlives its org.
CREATE TABLE runs (
  org           TEXT    NOT NULL,
  run_id        TEXT    NOT NULL,
  principal     TEXT    NOT NULL,
  surface       TEXT    NOT NULL,
  grade         TEXT    NOT NULL,
  model         TEXT    NOT NULL,
  status        TEXT    NOT NULL, -- running, waiting, paused, done, or set_aside: its journal cannot be decoded
  finish_reason TEXT    NOT NULL, -- empty before
  rounds        INTEGER NOT NULL,
  calls         INTEGER NOT NULL,
  tokens        INTEGER NOT NULL,
  epoch         INTEGER NOT NULL, -- a writer with a lower one is fenced
  next_seq      INTEGER NOT NULL,
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  owner         TEXT    NOT NULL DEFAULT '',
  lease_until   INTEGER NOT NULL DEFAULT 0, -- a running run whose lease has ended can be claimed
  aside         TEXT    NOT NULL DEFAULT '{}', -- JSON; why it is set aside
  waits         INTEGER NOT NULL DEFAULT 0, -- approvals that are not decided
  slots         INTEGER NOT NULL DEFAULT 0, -- runs of the org that may run at a time; 0 = no limit
  PRIMARY KEY (org, run_id)
) STRICT;
CREATE INDEX runs_latest ON runs (org, created_at, run_id);
-- Without lease_until, which every append changes: few runs are running, so that an org's
-- leases are counted by looking at each.
CREATE INDEX runs_running ON runs (org, created_at, run_id) WHERE status = 'running';
CREATE INDEX runs_aside ON runs (org, run_id) WHERE status = 'set_aside';
CREATE INDEX runs_finished ON runs (finished_at) WHERE status = 'done';

-- A row with the kind 'pack' reservations several facts of a run, the last of which has its seq, and
-- rows that were stored with them.
--
-- With a rowid: bodies of a few KiB in a table without one cost twice the space and half the
-- speed.
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

-- Runs that are deleted when they have ended.
CREATE TABLE forgotten_runs (
  org    TEXT NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;

-- Tool calls that wait for the approval of a person, and those that were decided. The facts of
-- their runs say the same: see journal.Head.ApprovalChanges.
CREATE TABLE approvals (
  org         TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  run_id      TEXT    NOT NULL,
  call_key    TEXT    NOT NULL, -- empty for a run that waits for a raise of its limits
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
  caller_at   TEXT    NOT NULL DEFAULT '', -- the process whose client waits for the answer; empty = somebody can come back for it
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;
CREATE INDEX approvals_run ON approvals (org, run_id);
CREATE INDEX approvals_latest ON approvals (org, created_at, id);
CREATE INDEX approvals_waiting ON approvals (org, created_at, id) WHERE status = 'waiting';
CREATE INDEX approvals_due ON approvals (expires_at) WHERE status = 'waiting' AND expires_at > 0;

-- Idempotency keys. A run is kept as long as its key.
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
CREATE INDEX submit_keys_run ON submit_keys (org, run_id);

-- What callers do not send again, by call, response or session. A conversation is stored once,
-- under the least of its keys. A key is its kind, a colon and its id.
CREATE TABLE conversations (
  org        TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  version    INTEGER NOT NULL, -- how often it was saved
  body       TEXT    NOT NULL, -- JSON
  saved_at   INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, principal, key)
) STRICT;
CREATE INDEX conversations_expire ON conversations (expires_at);
CREATE INDEX conversations_oldest ON conversations (org, substr(key, 1, 5) = 'call:', saved_at);

CREATE TABLE conversation_keys (
  org          TEXT NOT NULL,
  principal    TEXT NOT NULL,
  key          TEXT NOT NULL,
  conversation TEXT NOT NULL,
  PRIMARY KEY (org, principal, key),
  FOREIGN KEY (org, principal, conversation) REFERENCES conversations (org, principal, key) ON DELETE CASCADE
) STRICT;
CREATE INDEX conversation_keys_conversation ON conversation_keys (org, principal, conversation);

-- reserved_tokens and reserved_nano_usd are the sums of the reservations in the scope that are open.
-- What the windows of budgets (a day, a month, or all time) have been charged with. Amounts are
-- tokens and 10⁻⁹ US dollars.
CREATE TABLE budgets (
  org               TEXT    NOT NULL,
  scope             TEXT    NOT NULL, -- whose, the period, and the day or month
  spent_tokens      INTEGER NOT NULL,
  spent_nano_usd    INTEGER NOT NULL,
  reserved_tokens   INTEGER NOT NULL,
  reserved_nano_usd INTEGER NOT NULL,
  overrun_tokens    INTEGER NOT NULL, -- the part of what is spent that exceeded its reservations
  overrun_nano_usd  INTEGER NOT NULL,
  limit_tokens      INTEGER NOT NULL, -- when something was last reserved; 0 = no limit
  limit_nano_usd    INTEGER NOT NULL,
  ends_at           INTEGER NOT NULL, -- of the window; 0 = never
  told              INTEGER NOT NULL, -- percent of which the audit log says that it was reached
  PRIMARY KEY (org, scope)
) STRICT;
CREATE INDEX budgets_ended ON budgets (ends_at) WHERE ends_at > 0;

-- What processes have drawn of budgets and not spent. It counts as reserved. The column spent is
-- what was spent of the slice since it was made.
CREATE TABLE slices (
  org            TEXT    NOT NULL,
  scope          TEXT    NOT NULL,
  owner          TEXT    NOT NULL,
  drawn_tokens   INTEGER NOT NULL,
  drawn_nano_usd INTEGER NOT NULL,
  spent_tokens   INTEGER NOT NULL,
  spent_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (org, scope, owner),
  FOREIGN KEY (org, scope) REFERENCES budgets (org, scope) ON DELETE CASCADE
) STRICT;

CREATE TABLE reservations (
  org      TEXT    NOT NULL,
  run_id   TEXT    NOT NULL,
  id       TEXT    NOT NULL,
  scope    TEXT    NOT NULL,
  tokens   INTEGER NOT NULL,
  nano_usd INTEGER NOT NULL,
  epoch    INTEGER NOT NULL, -- of the lease under which it was made
  PRIMARY KEY (org, run_id, id, scope),
  FOREIGN KEY (org, scope) REFERENCES budgets (org, scope)
) STRICT;

-- How much of an org's is stored, so that it need not be counted: of runs with their facts and
-- rows, and of conversations. The gateway adds what it inserts; the triggers subtract what is
-- deleted, also by a cascade. Bytes are those of a body, and for each row a constant for its
-- columns, its keys and its place in the indexes: those of usage.go.
CREATE TABLE org_usage (
  org           TEXT    NOT NULL PRIMARY KEY,
  bytes         INTEGER NOT NULL,
  conversations INTEGER NOT NULL,
  handovers     INTEGER NOT NULL DEFAULT 0 -- conversations of calls, which have a cap of their own
) STRICT, WITHOUT ROWID;

CREATE TRIGGER runs_usage AFTER DELETE ON runs BEGIN
  UPDATE org_usage SET bytes = bytes - 500 WHERE org = old.org;
END;
CREATE TRIGGER run_facts_usage AFTER DELETE ON run_facts BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body) WHERE org = old.org;
END;
CREATE TRIGGER run_rows_usage AFTER DELETE ON run_rows BEGIN
  UPDATE org_usage SET bytes = bytes - 160 - octet_length(old.body) WHERE org = old.org;
END;
CREATE TRIGGER conversations_usage AFTER DELETE ON conversations BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body), conversations = conversations - 1,
    handovers = handovers - (substr(old.key, 1, 5) = 'call:') WHERE org = old.org;
END;
CREATE TRIGGER conversations_replaced AFTER UPDATE OF body ON conversations BEGIN
  UPDATE org_usage SET bytes = bytes - octet_length(old.body) WHERE org = old.org;
END;
CREATE TRIGGER conversation_keys_usage AFTER DELETE ON conversation_keys BEGIN
  UPDATE org_usage SET bytes = bytes - 300 WHERE org = old.org;
END;

-- What tools have answered. The rowid grows: the oldest entry has the least.
CREATE TABLE tool_cache (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       BLOB    NOT NULL, -- SHA-256 of what was called
  kept_at    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  mac        BLOB    NOT NULL, -- over all of it and the org, under a key that is not in this file
  bytes      INTEGER NOT NULL, -- of value
  value      BLOB    NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;
CREATE INDEX tool_cache_oldest ON tool_cache (org);
CREATE INDEX tool_cache_expire ON tool_cache (expires_at);

-- How much of each org's is in tool_cache.
CREATE TABLE tool_cache_sizes (
  org     TEXT    NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
  entries INTEGER NOT NULL,
  bytes   INTEGER NOT NULL
) STRICT;
CREATE TRIGGER tool_cache_kept AFTER INSERT ON tool_cache BEGIN
  INSERT INTO tool_cache_sizes (org, entries, bytes) VALUES (new.org, 1, new.bytes)
  ON CONFLICT (org) DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER tool_cache_dropped AFTER DELETE ON tool_cache BEGIN
  UPDATE tool_cache_sizes SET entries = entries - 1, bytes = bytes - old.bytes WHERE org = old.org;
END;

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

-- One row, which is written to see whether there is room.
CREATE TABLE probes (
  id   INTEGER NOT NULL PRIMARY KEY,
  body BLOB    NOT NULL
) STRICT;
-- +goose StatementEnd
