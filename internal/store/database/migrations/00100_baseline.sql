-- The whole schema. Its number is above those of all builds before it: see schema.go.
--
-- The org comes first in every key. Times are Unix milliseconds; 0 = never.
-- Secrets are stored by reference, or sealed.

-- +goose Up
-- +goose StatementBegin
PRAGMA application_id = 1414541361; -- "TP01": see schema.go

-- Orgs and what they have set ------------------------------------------------------------------

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
CREATE INDEX api_keys_created ON api_keys (org, created_at, id);

CREATE TABLE secrets (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       TEXT    NOT NULL,
  sealed     BLOB    NOT NULL, -- opens with the operator's master key, under this org and name only
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;

-- The settings are one JSON object, so that a new setting needs no migration.
CREATE TABLE mcp_outbound_servers (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       TEXT    NOT NULL,
  position   INTEGER NOT NULL,
  settings   TEXT    NOT NULL DEFAULT '{}', -- JSON
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;

-- Servers that the configuration file shares among orgs and that an org has switched off.
CREATE TABLE mcp_servers_off (
  org  TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

-- Runs -----------------------------------------------------------------------------------------

-- The head of a run: the sum of its facts. It outlives its org.
CREATE TABLE runs (
  org           TEXT    NOT NULL,
  run_id        TEXT    NOT NULL,
  principal     TEXT    NOT NULL,
  surface       TEXT    NOT NULL,
  grade         TEXT    NOT NULL,
  model         TEXT    NOT NULL,
  status        TEXT    NOT NULL, -- queued, running, waiting, paused, done, or set_aside: its journal cannot be decoded
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
  conversation  TEXT    NOT NULL DEFAULT '', -- the id of the one with parts that the run adds to; empty = none
  PRIMARY KEY (org, run_id)
) STRICT;
CREATE INDEX runs_adding ON runs (org, conversation) WHERE conversation <> '' AND status <> 'done';
CREATE INDEX runs_latest ON runs (org, created_at, run_id);
-- Without lease_until, which every append changes: few runs are running, so that an org's
-- leases are counted by looking at each.
CREATE INDEX runs_running ON runs (org, created_at, run_id) WHERE status = 'running';
CREATE INDEX runs_aside ON runs (org, run_id) WHERE status = 'set_aside';
CREATE INDEX runs_finished ON runs (finished_at) WHERE status = 'done';
-- The runs that wait for a slot. The principal is there for counts by principal.
CREATE INDEX runs_queued ON runs (org, created_at, run_id, principal) WHERE status = 'queued';

-- A row with the kind 'pack' holds several facts of a run, the last of which has its seq, and
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
  rest   TEXT, -- the list of what follows in the list of body; NULL = body has all. See shared_lists
  PRIMARY KEY (org, run_id, ref),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;

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
  host        TEXT    NOT NULL DEFAULT '', -- where an approved call goes; '' = a program, the gateway itself, or not known
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

-- Runs that are deleted when they have ended.
CREATE TABLE forgotten_runs (
  org    TEXT NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;

-- Runs that had not ended when their session was deleted, until somebody has asked them to end.
CREATE TABLE orphaned_runs (
  org    TEXT NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
) STRICT;

-- Conversations --------------------------------------------------------------------------------

-- What callers do not send again, by call, response or session. A conversation is stored once,
-- under the least of its keys. A key is its kind, a colon and its id.
CREATE TABLE conversations (
  org        TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  version    INTEGER NOT NULL, -- how often it was saved
  previous   TEXT    NOT NULL DEFAULT '', -- id of the segment that it follows; empty = none
  body       TEXT    NOT NULL, -- JSON
  parts      TEXT, -- the list of the parts that body does not name; NULL = it names all. See shared_lists
  saved_at   INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, principal, key)
) STRICT;
CREATE INDEX conversations_expire ON conversations (expires_at);
CREATE INDEX conversations_oldest ON conversations (org, substr(key, 1, 5) = 'call:', saved_at);
-- Those that are kept: see journal.Kept.
CREATE INDEX conversations_kept ON conversations (org) WHERE expires_at >= 7000000000000;

CREATE TABLE conversation_keys (
  org          TEXT NOT NULL,
  principal    TEXT NOT NULL,
  key          TEXT NOT NULL,
  conversation TEXT NOT NULL,
  PRIMARY KEY (org, principal, key),
  FOREIGN KEY (org, principal, conversation) REFERENCES conversations (org, principal, key) ON DELETE CASCADE
) STRICT;
CREATE INDEX conversation_keys_conversation ON conversation_keys (org, principal, conversation);

-- Lists whose begin is that of other lists: what runs begin with, and of what conversations consist. See package
-- sqlite, shared.go.
CREATE TABLE shared_lists (
  org      TEXT    NOT NULL,
  digest   TEXT    NOT NULL, -- of all its elements, with those in front
  before   TEXT    NOT NULL, -- the digest of the list whose elements are in front; empty = none are
  elements INTEGER NOT NULL, -- how many, with those in front
  bytes    INTEGER NOT NULL, -- of all of them
  uses     INTEGER NOT NULL, -- rows, conversations and lists that name it; without any it is deleted
  body     TEXT    NOT NULL, -- the elements behind those in front, as JSON, with a comma between two
  PRIMARY KEY (org, digest)
) STRICT;
CREATE INDEX shared_lists_unused ON shared_lists (uses) WHERE uses = 0;

CREATE TRIGGER run_rows_rest AFTER DELETE ON run_rows WHEN old.rest IS NOT NULL BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.rest;
END;
CREATE TRIGGER conversations_parts AFTER DELETE ON conversations WHEN old.parts IS NOT NULL BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.parts;
END;
CREATE TRIGGER conversations_parts_replaced AFTER UPDATE OF parts ON conversations WHEN old.parts IS NOT NULL BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.parts;
END;
CREATE TRIGGER shared_lists_before AFTER DELETE ON shared_lists BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.before;
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body) WHERE org = old.org;
END;

-- The parts that several conversations have, since one was forked: a row for each of these.
CREATE TABLE shared_parts (
  org          TEXT NOT NULL,
  part         TEXT NOT NULL, -- a key of conversations
  conversation TEXT NOT NULL, -- a key of conversations
  PRIMARY KEY (org, part, conversation)
) STRICT, WITHOUT ROWID;
CREATE INDEX shared_parts_of ON shared_parts (org, conversation);

-- A shared part is deleted with the last conversation that has it.
CREATE TRIGGER conversations_shared AFTER DELETE ON conversations WHEN old.principal = '' AND substr(old.key, 1, 8) = 'session:' BEGIN
  DELETE FROM shared_parts WHERE org = old.org AND conversation = old.key;
END;
CREATE TRIGGER shared_parts_last AFTER DELETE ON shared_parts
WHEN NOT EXISTS (SELECT 1 FROM shared_parts WHERE org = old.org AND part = old.part) BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = old.part;
END;

-- Sessions of programs are a head, and a chain of segments that each name the one before. Both have a principal that
-- begins with "library:".
CREATE INDEX conversations_previous ON conversations (org, principal, previous)
  WHERE principal >= 'library:' AND principal < 'library;' AND previous <> '';
CREATE INDEX conversations_heads ON conversations (org, principal, saved_at, key)
  WHERE principal >= 'library:' AND principal < 'library;' AND key >= 'session:' AND key < 'session;';

-- The segments that a head has left or leaves alone are deleted, up to one that another head or segment names.
CREATE TRIGGER conversations_head_deleted AFTER DELETE ON conversations
WHEN old.principal >= 'library:' AND old.principal < 'library;' AND old.previous <> '' AND substr(old.key, 1, 8) = 'session:' BEGIN
  DELETE FROM conversations WHERE rowid IN (WITH RECURSIVE alone (id, previous, named) AS (
      SELECT NULL, old.previous, 0
    UNION ALL
      SELECT c.rowid, c.previous, 1 FROM alone CROSS JOIN conversations c
        ON c.org = old.org AND c.principal = old.principal AND c.key = 'response:' || alone.previous
      WHERE alone.named = (SELECT count(*) FROM (SELECT 1 FROM conversations n INDEXED BY conversations_previous
        WHERE n.org = old.org AND n.principal = old.principal AND n.previous = alone.previous
        AND n.principal >= 'library:' AND n.principal < 'library;' AND n.previous <> '' LIMIT 2)))
    SELECT id FROM alone);
END;
CREATE TRIGGER conversations_head_moved AFTER UPDATE OF previous ON conversations
WHEN old.principal >= 'library:' AND old.principal < 'library;' AND old.previous <> '' AND substr(old.key, 1, 8) = 'session:'
  AND new.previous <> old.previous BEGIN
  DELETE FROM conversations WHERE rowid IN (WITH RECURSIVE alone (id, previous, named) AS (
      SELECT NULL, old.previous, 0
    UNION ALL
      SELECT c.rowid, c.previous, 1 FROM alone CROSS JOIN conversations c
        ON c.org = old.org AND c.principal = old.principal AND c.key = 'response:' || alone.previous
      WHERE alone.named = (SELECT count(*) FROM (SELECT 1 FROM conversations n INDEXED BY conversations_previous
        WHERE n.org = old.org AND n.principal = old.principal AND n.previous = alone.previous
        AND n.principal >= 'library:' AND n.principal < 'library;' AND n.previous <> '' LIMIT 2)))
    SELECT id FROM alone);
END;

-- Agents and their sessions --------------------------------------------------------------------

CREATE TABLE agents (
  org         TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id          TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  version     INTEGER NOT NULL, -- the latest
  archived_at INTEGER NOT NULL DEFAULT 0, -- 0 = it is not archived
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT;
CREATE UNIQUE INDEX agents_name ON agents (org, name);
CREATE INDEX agents_created ON agents (org, created_at, id);

-- What agents are. A row never changes.
CREATE TABLE agent_versions (
  org        TEXT    NOT NULL,
  agent      TEXT    NOT NULL,
  version    INTEGER NOT NULL, -- from 1 on
  definition TEXT    NOT NULL, -- JSON
  principal  TEXT    NOT NULL, -- who made it
  created_at INTEGER NOT NULL,
  PRIMARY KEY (org, agent, version),
  FOREIGN KEY (org, agent) REFERENCES agents (org, id) ON DELETE CASCADE
) STRICT;

-- What the agents of the configuration file are and were. A row never changes.
CREATE TABLE declared_versions (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  agent      TEXT    NOT NULL, -- id, which is the name
  version    INTEGER NOT NULL, -- from 1 on
  definition TEXT    NOT NULL, -- JSON
  principal  TEXT    NOT NULL, -- the operator
  created_at INTEGER NOT NULL,
  PRIMARY KEY (org, agent, version)
) STRICT;

-- The custom tools that agents can have. Agents name them by their ids in their definitions.
CREATE TABLE tools (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id         TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  definition TEXT    NOT NULL, -- JSON
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT;
CREATE UNIQUE INDEX tools_name ON tools (org, name);

-- Settings of orgs for their agents. Secret ones are in the table secrets.
CREATE TABLE agent_settings (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  key        TEXT    NOT NULL,
  value      TEXT    NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, key)
) STRICT;

-- Conversations of one agent and one principal. The status of a session is that of its latest run.
CREATE TABLE sessions (
  org           TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id            TEXT    NOT NULL,
  agent         TEXT    NOT NULL, -- also one that the configuration file declares
  principal     TEXT    NOT NULL, -- whose session it is
  pinned        INTEGER NOT NULL, -- 0 = it follows its agent
  snapshot      TEXT    NOT NULL, -- JSON; of the latest turn, or with which it was created
  title         TEXT    NOT NULL DEFAULT '',
  metadata      TEXT    NOT NULL DEFAULT '{}', -- JSON
  turns         INTEGER NOT NULL DEFAULT 0,
  run_id        TEXT    NOT NULL DEFAULT '', -- of the latest turn
  active_ms     INTEGER NOT NULL DEFAULT 0, -- of its runs that have ended
  cost_nano_usd INTEGER NOT NULL DEFAULT 0, -- of its runs that have ended and whose cost is known
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT;
CREATE INDEX sessions_agent ON sessions (org, agent, updated_at, id);

-- The runs of sessions.
CREATE TABLE session_turns (
  org        TEXT    NOT NULL,
  run_id     TEXT    NOT NULL,
  session    TEXT    NOT NULL,
  number     INTEGER NOT NULL, -- from 1 on, in the session
  version    INTEGER NOT NULL, -- of the agent
  rounds     INTEGER NOT NULL, -- that it may have
  reasoning  INTEGER NOT NULL, -- 1 = the client has asked for the reasoning of the model
  snapshot   TEXT, -- JSON; of the agent of a turn that was queued; NULL = that of the session when the turn began
  created_at INTEGER NOT NULL,
  PRIMARY KEY (org, run_id),
  UNIQUE (org, session, number),
  FOREIGN KEY (org, session) REFERENCES sessions (org, id) ON DELETE CASCADE
) STRICT;

-- The inboxes of sessions. A row that was delivered never changes again.
CREATE TABLE session_inputs (
  seq          INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, -- the order of all inputs
  org          TEXT    NOT NULL,
  session      TEXT    NOT NULL,
  id           TEXT    NOT NULL, -- also that of its event
  kind         TEXT    NOT NULL,
  principal    TEXT    NOT NULL, -- who sent it
  body         TEXT    NOT NULL, -- JSON
  key          TEXT, -- the Idempotency-Key of its batch; NULL = it has none, or is not the first of the batch
  digest       TEXT    NOT NULL DEFAULT '', -- of the batch
  run_id       TEXT    NOT NULL DEFAULT '', -- that it was delivered to
  created_at   INTEGER NOT NULL, -- strictly rising in a session
  processed_at INTEGER, -- NULL while it waits
  UNIQUE (org, id),
  UNIQUE (org, session, key),
  FOREIGN KEY (org, session) REFERENCES sessions (org, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX session_inputs_session ON session_inputs (org, session, seq);
CREATE INDEX session_inputs_waiting ON session_inputs (org, session, seq) WHERE processed_at IS NULL;
-- The inputs that wait for the run of a turn: a message until the run begins, an interrupt until the run ends.
CREATE INDEX session_inputs_of_run ON session_inputs (org, run_id) WHERE processed_at IS NULL;
CREATE INDEX session_inputs_interrupts ON session_inputs (seq) WHERE processed_at IS NULL AND kind = 'interrupt';

-- The conversation of a session is deleted with it, and never before. It is stored under the keys that
-- package conversation makes of the ids of sessions and runs.
CREATE TRIGGER sessions_conversation AFTER DELETE ON sessions BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = 'session:' || old.id;
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = 'session:items_' || substr(old.id, 6)
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = conversations.org AND s.part = conversations.key);
END;
CREATE TRIGGER session_turns_conversation AFTER DELETE ON session_turns BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND (key = 'response:resp_' || substr(old.run_id, 5)
    OR key > 'response:resp_' || substr(old.run_id, 5) || 'p' AND key < 'response:resp_' || substr(old.run_id, 5) || 'q')
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = conversations.org AND s.part = conversations.key);
END;
CREATE TRIGGER session_turns_orphan AFTER DELETE ON session_turns BEGIN
  INSERT OR IGNORE INTO orphaned_runs (org, run_id)
    SELECT org, run_id FROM runs WHERE org = old.org AND run_id = old.run_id AND status <> 'done';
END;

-- Files ----------------------------------------------------------------------------------------

-- What is known of the files of keys. Their content is in the data directory.
CREATE TABLE files (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id         TEXT    NOT NULL, -- its order is that of creation
  principal  TEXT    NOT NULL, -- whose file it is
  name       TEXT    NOT NULL,
  media_type TEXT    NOT NULL DEFAULT '',
  purpose    TEXT    NOT NULL,
  bytes      INTEGER NOT NULL,
  sha256     TEXT    NOT NULL,
  container  TEXT    NOT NULL DEFAULT '', -- id of the container whose code has made it; '' = it was uploaded
  path       TEXT    NOT NULL DEFAULT '', -- in the working directory of that code
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, -- 0 = never
  expired    INTEGER NOT NULL DEFAULT 0, -- 1 = its content was deleted because its time was over
  PRIMARY KEY (org, id)
) STRICT;
CREATE INDEX files_principal ON files (org, principal, id);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at > 0;
CREATE INDEX files_container ON files (org, container, id) WHERE container <> '';

-- Webhooks -------------------------------------------------------------------------------------

-- Where the events of orgs are sent.
CREATE TABLE webhooks (
  org            TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name           TEXT    NOT NULL,
  url            TEXT    NOT NULL,
  events         TEXT    NOT NULL, -- JSON: patterns
  sealed         BLOB    NOT NULL, -- the secret that signs; opens with the operator's master key, under this org and name only
  previous       BLOB    NOT NULL DEFAULT x'', -- the secret before the latest rotation, sealed; empty = none
  previous_until INTEGER NOT NULL DEFAULT 0,
  stopped        TEXT    NOT NULL DEFAULT '', -- why nothing is sent; empty = it is
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  waiting        INTEGER NOT NULL DEFAULT 0, -- messages: the triggers below count
  given_up       INTEGER NOT NULL DEFAULT 0, -- messages since it was created
  PRIMARY KEY (org, name)
) STRICT;
CREATE INDEX webhooks_waiting ON webhooks (org, name) WHERE waiting > 0;

-- Messages for webhooks, one for each event and webhook. The rowid grows: of two, the one whose
-- event happened first has the least.
CREATE TABLE outbox (
  org           TEXT    NOT NULL,
  id            TEXT    NOT NULL, -- the webhook-id
  webhook       TEXT    NOT NULL,
  event         TEXT    NOT NULL,
  object        TEXT    NOT NULL,
  subject       TEXT    NOT NULL, -- messages with the same one are delivered in order
  at            INTEGER NOT NULL, -- when it happened
  outcome       TEXT    NOT NULL DEFAULT 'waiting', -- waiting, delivered, given_up
  attempts      INTEGER NOT NULL DEFAULT 0,
  next_at       INTEGER NOT NULL,
  give_up_at    INTEGER NOT NULL,
  claimed_until INTEGER NOT NULL DEFAULT 0,
  ended_at      INTEGER NOT NULL DEFAULT 0, -- 0 = it waits
  status        INTEGER NOT NULL DEFAULT 0,
  error         TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, webhook) REFERENCES webhooks (org, name) ON DELETE CASCADE
) STRICT;
CREATE INDEX outbox_due ON outbox (org, webhook, ended_at, next_at);
CREATE INDEX outbox_oldest ON outbox (org, webhook, at) WHERE ended_at = 0;
CREATE INDEX outbox_subject ON outbox (org, webhook, subject) WHERE ended_at = 0;
CREATE INDEX outbox_claimed ON outbox (claimed_until) WHERE claimed_until > 0;
CREATE INDEX outbox_ended ON outbox (ended_at) WHERE ended_at > 0;

CREATE TRIGGER outbox_added AFTER INSERT ON outbox WHEN new.ended_at = 0 BEGIN
  UPDATE webhooks SET waiting = waiting + 1 WHERE org = new.org AND name = new.webhook;
END;
CREATE TRIGGER outbox_changed AFTER UPDATE OF ended_at ON outbox WHEN (old.ended_at = 0) <> (new.ended_at = 0) BEGIN
  UPDATE webhooks SET waiting = waiting + iif(new.ended_at = 0, 1, -1), given_up = given_up + (new.outcome = 'given_up')
  WHERE org = new.org AND name = new.webhook;
END;
CREATE TRIGGER outbox_deleted AFTER DELETE ON outbox WHEN old.ended_at = 0 BEGIN
  UPDATE webhooks SET waiting = waiting - 1 WHERE org = old.org AND name = old.webhook;
END;

-- Budgets --------------------------------------------------------------------------------------

-- What the windows of budgets (a day, a month, or all time) have been charged with. Amounts are
-- tokens and 10⁻⁹ US dollars.
CREATE TABLE budgets (
  org               TEXT    NOT NULL,
  scope             TEXT    NOT NULL, -- whose, the period, and the day or month
  spent_tokens      INTEGER NOT NULL,
  spent_nano_usd    INTEGER NOT NULL,
  reserved_tokens   INTEGER NOT NULL, -- the sum of the reservations in the scope that are open
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

-- What processes have drawn of budgets and not spent. It counts as reserved. The columns spent_tokens
-- and spent_nano_usd are what was spent of the slice since it was made.
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

-- How much an org stores -----------------------------------------------------------------------

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

-- Answers of tools -----------------------------------------------------------------------------

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

-- The audit log and its sums -------------------------------------------------------------------

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
-- The kinds that are rare. A statement uses it only if it names the index and repeats the condition.
CREATE INDEX audit_log_rare ON audit_log (org, kind, n)
  WHERE kind NOT IN ('audit_log.request', 'audit_log.agent.tool_call', 'audit_log.mcp.tool_call', 'audit_log.resource.call');

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

-- What the rows of the audit log add up to. A sum is kept for each combination of the columns of its
-- key. It is written in the transaction of its rows and outlives them.
CREATE TABLE usage_sums (
  org                TEXT    NOT NULL,
  day                INTEGER NOT NULL, -- since 1970-01-01, in UTC
  end_user           TEXT    NOT NULL, -- empty = nobody, or several; third, so that it is known whether an end user has a sum
  rest               INTEGER NOT NULL, -- 1 = end_user is several, 2 = model and target are several, 3 = both; 0 = neither
  principal          TEXT    NOT NULL,
  model              TEXT    NOT NULL, -- the client's name
  provider           TEXT    NOT NULL,
  target             TEXT    NOT NULL, -- the provider's name of the model
  surface            TEXT    NOT NULL,
  agent              TEXT    NOT NULL,
  first_n            INTEGER NOT NULL, -- the rows in it have numbers from first_n to last_n
  last_n             INTEGER NOT NULL,
  requests           INTEGER NOT NULL DEFAULT 0,
  tool_calls         INTEGER NOT NULL DEFAULT 0,
  gpu_ms             INTEGER NOT NULL DEFAULT 0,
  input_tokens       INTEGER NOT NULL DEFAULT 0,
  cached_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens      INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
  nano_usd           INTEGER NOT NULL DEFAULT 0, -- with tool_nano_usd
  tool_nano_usd      INTEGER NOT NULL DEFAULT 0,
  estimated_input    INTEGER NOT NULL DEFAULT 0, -- the parts of the sums that the gateway has estimated
  estimated_output   INTEGER NOT NULL DEFAULT 0,
  estimated_nano_usd INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (org, day, end_user, rest, principal, model, provider, target, surface, agent)
) STRICT, WITHOUT ROWID;

-- How many names the sums of a day have. Further ones are added up together.
CREATE TABLE usage_days (
  org       TEXT    NOT NULL,
  day       INTEGER NOT NULL,
  end_users INTEGER NOT NULL,
  models    INTEGER NOT NULL,
  PRIMARY KEY (org, day)
) STRICT, WITHOUT ROWID;

-- The models of usage_days. An end user is found in the primary key of usage_sums.
CREATE TABLE usage_models (
  org   TEXT    NOT NULL,
  day   INTEGER NOT NULL,
  model TEXT    NOT NULL,
  PRIMARY KEY (org, day, model)
) STRICT, WITHOUT ROWID;

-- Since when the estimated parts of usage_sums are known, in Unix milliseconds. No row: since the first sum.
CREATE TABLE usage_estimates (
  since INTEGER NOT NULL
) STRICT;

-- The disk -------------------------------------------------------------------------------------

-- One row, which is written to see whether there is room.
CREATE TABLE probes (
  id   INTEGER NOT NULL PRIMARY KEY,
  body BLOB    NOT NULL
) STRICT;
-- +goose StatementEnd
