-- The whole schema: the tables and columns of the baseline for SQLite, in package database, and the
-- tables of replicas.
--
-- The org comes first in every key. Times are Unix milliseconds; 0 = never. A flag is a bigint, 0 or 1.
-- Secrets are stored by reference, or sealed. Texts are compared by their bytes, on every server.
-- Bodies are bytea, which returns the very bytes: jsonb does not, and text refuses some.
--
-- A column rowid grows with the time of the insertion. It is what SQLite's rowid is.
--
-- Statements that write hold the advisory lock of their org, so that the triggers' counters are not
-- contended.

-- +goose Up
-- +goose StatementBegin
-- Orgs and what they have set ------------------------------------------------------------------

-- Orgs of the configuration file have no row.
CREATE TABLE orgs (
  id         text COLLATE "C" NOT NULL PRIMARY KEY,
  features   text COLLATE "C" NOT NULL, -- JSON
  runtime    text COLLATE "C" NOT NULL, -- JSON
  created_at bigint           NOT NULL,
  updated_at bigint           NOT NULL
);

-- Orgs that were deleted and of which something is stored that retention has to delete.
CREATE TABLE deleted_orgs (
  org        text COLLATE "C" NOT NULL PRIMARY KEY,
  deleted_at bigint           NOT NULL
);

CREATE TABLE api_keys (
  org                 text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id                  text COLLATE "C" NOT NULL,
  name                text COLLATE "C" NOT NULL,
  role                text COLLATE "C" NOT NULL,
  hash                bytea            NOT NULL UNIQUE, -- SHA-256 of the key, which is not stored
  hint                text COLLATE "C" NOT NULL,
  created_at          bigint           NOT NULL,
  revoked_at          bigint           NOT NULL,
  requests_per_minute bigint           NOT NULL DEFAULT 0, -- 0 = no limit
  burst               bigint           NOT NULL DEFAULT 0, -- 0 = as many as requests_per_minute
  access              text COLLATE "C" NOT NULL DEFAULT '{}', -- JSON: what the key may use
  expires_at          bigint           NOT NULL DEFAULT 0, -- 0 = never
  previous_hash       bytea, -- of the secret before the latest rotation
  previous_hint       text COLLATE "C" NOT NULL DEFAULT '',
  previous_until      bigint           NOT NULL DEFAULT 0, -- when it ends; 0 = there is none
  PRIMARY KEY (org, id)
);
CREATE INDEX api_keys_working ON api_keys (org) WHERE revoked_at = 0;
CREATE INDEX api_keys_revoked ON api_keys (org, revoked_at) WHERE revoked_at > 0;
CREATE INDEX api_keys_created ON api_keys (org, created_at, id);

CREATE TABLE secrets (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       text COLLATE "C" NOT NULL,
  sealed     bytea            NOT NULL, -- opens with the operator's master key, under this org and name only
  created_at bigint           NOT NULL,
  updated_at bigint           NOT NULL,
  PRIMARY KEY (org, name)
);

-- The settings are one JSON object, so that a new setting needs no migration.
CREATE TABLE mcp_outbound_servers (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       text COLLATE "C" NOT NULL,
  position   bigint           NOT NULL,
  settings   text COLLATE "C" NOT NULL DEFAULT '{}', -- JSON
  created_at bigint           NOT NULL,
  updated_at bigint           NOT NULL,
  PRIMARY KEY (org, name)
);

-- Servers that the configuration file shares among orgs and that an org has switched off.
CREATE TABLE mcp_servers_off (
  org  text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name text COLLATE "C" NOT NULL,
  PRIMARY KEY (org, name)
);

-- Runs -----------------------------------------------------------------------------------------

-- The head of a run: the sum of its facts. It outlives its org.
CREATE TABLE runs (
  org           text COLLATE "C" NOT NULL,
  run_id        text COLLATE "C" NOT NULL,
  principal     text COLLATE "C" NOT NULL,
  surface       text COLLATE "C" NOT NULL,
  grade         text COLLATE "C" NOT NULL,
  model         text COLLATE "C" NOT NULL,
  status        text COLLATE "C" NOT NULL, -- queued, running, waiting, paused, done, or set_aside: its journal cannot be decoded
  finish_reason text COLLATE "C" NOT NULL, -- empty before
  rounds        bigint           NOT NULL,
  calls         bigint           NOT NULL,
  tokens        bigint           NOT NULL,
  epoch         bigint           NOT NULL, -- a writer with a lower one is fenced
  next_seq      bigint           NOT NULL,
  created_at    bigint           NOT NULL,
  updated_at    bigint           NOT NULL,
  finished_at   bigint           NOT NULL,
  owner         text COLLATE "C" NOT NULL DEFAULT '',
  lease_until   bigint           NOT NULL DEFAULT 0, -- a running run whose lease has ended can be claimed
  aside         text COLLATE "C" NOT NULL DEFAULT '{}', -- JSON; why it is set aside
  waits         bigint           NOT NULL DEFAULT 0, -- approvals that are not decided
  slots         bigint           NOT NULL DEFAULT 0, -- runs of the org that may run at a time; 0 = no limit
  conversation  text COLLATE "C" NOT NULL DEFAULT '', -- the id of the one with parts that the run adds to; empty = none
  PRIMARY KEY (org, run_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
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
-- Without a foreign key, which would cost a fifth of the speed: whoever inserts has changed the
-- head in the same transaction, and a trigger deletes.
CREATE TABLE run_facts (
  org      text COLLATE "C" NOT NULL,
  run_id   text COLLATE "C" NOT NULL,
  seq      bigint           NOT NULL,
  epoch    bigint           NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  call_key text COLLATE "C", -- NULL for a fact about no call in particular
  attempt  bigint           NOT NULL,
  at       bigint           NOT NULL,
  v        bigint           NOT NULL,
  body     bytea            NOT NULL, -- JSON
  PRIMARY KEY (org, run_id, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE UNIQUE INDEX run_facts_call ON run_facts (org, run_id, kind, call_key, attempt) WHERE call_key IS NOT NULL;

CREATE TABLE run_rows (
  org    text COLLATE "C" NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  ref    text COLLATE "C" NOT NULL,
  body   bytea            NOT NULL, -- JSON
  rest   text COLLATE "C", -- the list of what follows in the list of body; NULL = body has all. See shared_lists
  PRIMARY KEY (org, run_id, ref)
);

CREATE FUNCTION runs_journal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM run_facts WHERE org = old.org AND run_id = old.run_id;
  DELETE FROM run_rows WHERE org = old.org AND run_id = old.run_id;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_journal AFTER DELETE ON runs FOR EACH ROW EXECUTE FUNCTION runs_journal();

-- Idempotency keys. A run is kept as long as its key.
CREATE TABLE submit_keys (
  org        text COLLATE "C" NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  hash       text COLLATE "C" NOT NULL, -- of the request
  run_id     text COLLATE "C" NOT NULL,
  expires_at bigint           NOT NULL,
  PRIMARY KEY (org, principal, key)
);
CREATE INDEX submit_keys_expire ON submit_keys (expires_at);
CREATE INDEX submit_keys_run ON submit_keys (org, run_id);

-- Tool calls that wait for the approval of a person, and those that were decided. The facts of
-- their runs say the same: see journal.Head.ApprovalChanges.
CREATE TABLE approvals (
  org         text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  run_id      text COLLATE "C" NOT NULL,
  call_key    text COLLATE "C" NOT NULL, -- empty for a run that waits for a raise of its limits
  principal   text COLLATE "C" NOT NULL, -- whose run it is
  surface     text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL, -- of the tool, as the model called it
  server      text COLLATE "C" NOT NULL,
  host        text COLLATE "C" NOT NULL DEFAULT '', -- where an approved call goes; '' = a program, the gateway itself, or not known
  tool        text COLLATE "C" NOT NULL,
  asker       text COLLATE "C" NOT NULL, -- server or request
  tool_digest text COLLATE "C" NOT NULL,
  args_ref    text COLLATE "C" NOT NULL, -- of a row of the run
  args_digest text COLLATE "C" NOT NULL,
  policy      text COLLATE "C" NOT NULL, -- digest of the rules that asked
  status      text COLLATE "C" NOT NULL, -- waiting, approved, denied, expired, void
  created_at  bigint           NOT NULL,
  expires_at  bigint           NOT NULL, -- 0 = never
  decided_at  bigint           NOT NULL DEFAULT 0,
  decided_by  text COLLATE "C" NOT NULL DEFAULT '',
  reason      text COLLATE "C" NOT NULL DEFAULT '',
  caller_at   text COLLATE "C" NOT NULL DEFAULT '', -- the process whose client waits for the answer; empty = somebody can come back for it
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
);
CREATE INDEX approvals_run ON approvals (org, run_id);
CREATE INDEX approvals_latest ON approvals (org, created_at, id);
CREATE INDEX approvals_waiting ON approvals (org, created_at, id) WHERE status = 'waiting';
CREATE INDEX approvals_due ON approvals (expires_at) WHERE status = 'waiting' AND expires_at > 0;

-- What hooks are told after their runs, one row for each run and hook. The rowid grows with the time.
CREATE TABLE hook_messages (
  org           text COLLATE "C" NOT NULL,
  id            text COLLATE "C" NOT NULL, -- the webhook-id
  run_id        text COLLATE "C" NOT NULL,
  hook          text COLLATE "C" NOT NULL,
  agent         bigint           NOT NULL, -- 1 = the hook belongs to the agent of the run
  position      bigint           NOT NULL,
  answer_ref    text COLLATE "C" NOT NULL, -- a ref in run_rows; '' = nothing is stored of the answer
  at            bigint           NOT NULL, -- when the run ended
  outcome       text COLLATE "C" NOT NULL DEFAULT 'waiting', -- waiting, succeeded, failed, timed_out, given_up
  claimed_until bigint           NOT NULL DEFAULT 0,
  ended_at      bigint           NOT NULL DEFAULT 0, -- 0 = it waits
  micros        bigint           NOT NULL DEFAULT 0,
  rowid         bigint           NOT NULL GENERATED BY DEFAULT AS IDENTITY,
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
);
CREATE INDEX hook_messages_of_run ON hook_messages (org, run_id);
CREATE INDEX hook_messages_waiting ON hook_messages (org, hook, claimed_until) WHERE ended_at = 0;

-- Runs that are deleted when they have ended.
CREATE TABLE forgotten_runs (
  org    text COLLATE "C" NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
);

-- Runs that had not ended when their session was deleted, until somebody has asked them to end.
CREATE TABLE orphaned_runs (
  org    text COLLATE "C" NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (org, run_id),
  FOREIGN KEY (org, run_id) REFERENCES runs (org, run_id) ON DELETE CASCADE
);

-- Conversations --------------------------------------------------------------------------------

-- What callers do not send again, by call, response or session. A conversation is stored once,
-- under the least of its keys. A key is its kind, a colon and its id.
CREATE TABLE conversations (
  org        text COLLATE "C" NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  version    bigint           NOT NULL, -- how often it was saved
  previous   text COLLATE "C" NOT NULL DEFAULT '', -- id of the segment that it follows; empty = none
  body       bytea            NOT NULL, -- JSON
  parts      text COLLATE "C", -- the list of the parts that body does not name; NULL = it names all. See shared_lists
  saved_at   bigint           NOT NULL,
  expires_at bigint           NOT NULL,
  rowid      bigint           NOT NULL GENERATED BY DEFAULT AS IDENTITY,
  PRIMARY KEY (org, principal, key)
);
CREATE INDEX conversations_expire ON conversations (expires_at);
CREATE INDEX conversations_oldest ON conversations (org, (substr(key, 1, 5) = 'call:'), saved_at, rowid);
-- Those that are kept: see journal.Kept.
CREATE INDEX conversations_kept ON conversations (org) WHERE expires_at >= 7000000000000;

CREATE TABLE conversation_keys (
  org          text COLLATE "C" NOT NULL,
  principal    text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  conversation text COLLATE "C" NOT NULL,
  PRIMARY KEY (org, principal, key),
  FOREIGN KEY (org, principal, conversation) REFERENCES conversations (org, principal, key) ON DELETE CASCADE
);
CREATE INDEX conversation_keys_conversation ON conversation_keys (org, principal, conversation);

-- Lists whose begin is that of other lists: what runs begin with, and of what conversations consist. See package
-- database, shared.go.
CREATE TABLE shared_lists (
  org      text COLLATE "C" NOT NULL,
  digest   text COLLATE "C" NOT NULL, -- of all its elements, with those in front
  before   text COLLATE "C" NOT NULL, -- the digest of the list whose elements are in front; empty = none are
  elements bigint           NOT NULL, -- how many, with those in front
  bytes    bigint           NOT NULL, -- of all of them
  uses     bigint           NOT NULL, -- rows, conversations and lists that name it; without any it is deleted
  body     bytea            NOT NULL, -- the elements behind those in front, as JSON, with a comma between two
  PRIMARY KEY (org, digest)
);
CREATE INDEX shared_lists_unused ON shared_lists (uses) WHERE uses = 0;

CREATE FUNCTION run_rows_rest() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, rest AS digest, count(*) AS n FROM gone WHERE rest IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2 LOOP
    UPDATE shared_lists SET uses = uses - g.n WHERE org = g.org AND digest = g.digest;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER run_rows_rest AFTER DELETE ON run_rows REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION run_rows_rest();
CREATE FUNCTION conversations_parts() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, parts AS digest, count(*) AS n FROM gone WHERE parts IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2 LOOP
    UPDATE shared_lists SET uses = uses - g.n WHERE org = g.org AND digest = g.digest;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER conversations_parts AFTER DELETE ON conversations REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION conversations_parts();
CREATE FUNCTION conversations_parts_replaced() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.parts;
  RETURN NULL;
END $$;
CREATE TRIGGER conversations_parts_replaced AFTER UPDATE OF parts ON conversations FOR EACH ROW
  WHEN (old.parts IS NOT NULL) EXECUTE FUNCTION conversations_parts_replaced();
CREATE FUNCTION shared_lists_before() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, before AS digest, count(*) AS n FROM gone WHERE before <> '' GROUP BY 1, 2 ORDER BY 1, 2 LOOP
    UPDATE shared_lists SET uses = uses - g.n WHERE org = g.org AND digest = g.digest;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER shared_lists_before AFTER DELETE ON shared_lists REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION shared_lists_before();
CREATE FUNCTION shared_lists_usage() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, sum(250 + octet_length(body)) AS bytes FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE org_usage SET bytes = bytes - g.bytes WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER shared_lists_usage AFTER DELETE ON shared_lists REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION shared_lists_usage();

-- The parts that several conversations have, since one was forked: a row for each of these.
CREATE TABLE shared_parts (
  org          text COLLATE "C" NOT NULL,
  part         text COLLATE "C" NOT NULL, -- a key of conversations
  conversation text COLLATE "C" NOT NULL, -- a key of conversations
  PRIMARY KEY (org, part, conversation)
);
CREATE INDEX shared_parts_of ON shared_parts (org, conversation);

-- A shared part is deleted with the last conversation that has it.
CREATE FUNCTION conversations_shared() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM shared_parts WHERE org = old.org AND conversation = old.key;
  RETURN NULL;
END $$;
CREATE TRIGGER conversations_shared AFTER DELETE ON conversations FOR EACH ROW
  WHEN (old.principal = '' AND substr(old.key, 1, 8) = 'session:') EXECUTE FUNCTION conversations_shared();
CREATE FUNCTION shared_parts_last() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = old.part
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = old.org AND s.part = old.part);
  RETURN NULL;
END $$;
CREATE TRIGGER shared_parts_last AFTER DELETE ON shared_parts FOR EACH ROW EXECUTE FUNCTION shared_parts_last();

-- Sessions of programs are a head, and a chain of segments that each name the one before. Both have a principal that
-- begins with "library:".
CREATE INDEX conversations_previous ON conversations (org, principal, previous)
  WHERE principal >= 'library:' AND principal < 'library;' AND previous <> '';
CREATE INDEX conversations_heads ON conversations (org, principal, saved_at, key)
  WHERE principal >= 'library:' AND principal < 'library;' AND key >= 'session:' AND key < 'session;';

-- The segments that a head has left or leaves alone are deleted, up to one that another head or segment names.
CREATE FUNCTION conversations_left_alone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = old.principal AND key IN (WITH RECURSIVE alone (key, previous, named) AS (
      SELECT '' COLLATE "C", old.previous, 0
    UNION ALL
      SELECT c.key, c.previous, 1 FROM alone JOIN conversations c
        ON c.org = old.org AND c.principal = old.principal AND c.key = 'response:' || alone.previous
      WHERE alone.named = (SELECT count(*) FROM (SELECT 1 FROM conversations n
        WHERE n.org = old.org AND n.principal = old.principal AND n.previous = alone.previous
        AND n.principal >= 'library:' AND n.principal < 'library;' AND n.previous <> '' LIMIT 2) AS names))
    SELECT alone.key FROM alone);
  RETURN NULL;
END $$;
CREATE TRIGGER conversations_head_deleted AFTER DELETE ON conversations FOR EACH ROW
  WHEN (old.principal >= 'library:' AND old.principal < 'library;' AND old.previous <> ''
    AND substr(old.key, 1, 8) = 'session:') EXECUTE FUNCTION conversations_left_alone();
CREATE TRIGGER conversations_head_moved AFTER UPDATE OF previous ON conversations FOR EACH ROW
  WHEN (old.principal >= 'library:' AND old.principal < 'library;' AND old.previous <> ''
    AND substr(old.key, 1, 8) = 'session:' AND new.previous <> old.previous) EXECUTE FUNCTION conversations_left_alone();

-- Agents and their sessions --------------------------------------------------------------------

CREATE TABLE agents (
  org         text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id          text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL,
  version     bigint           NOT NULL, -- the latest
  archived_at bigint           NOT NULL DEFAULT 0, -- 0 = it is not archived
  created_at  bigint           NOT NULL,
  updated_at  bigint           NOT NULL,
  PRIMARY KEY (org, id)
);
CREATE UNIQUE INDEX agents_name ON agents (org, name);
CREATE INDEX agents_created ON agents (org, created_at, id);

-- What agents are. A row never changes.
CREATE TABLE agent_versions (
  org        text COLLATE "C" NOT NULL,
  agent      text COLLATE "C" NOT NULL,
  version    bigint           NOT NULL, -- from 1 on
  definition text COLLATE "C" NOT NULL, -- JSON
  principal  text COLLATE "C" NOT NULL, -- who made it
  created_at bigint           NOT NULL,
  PRIMARY KEY (org, agent, version),
  FOREIGN KEY (org, agent) REFERENCES agents (org, id) ON DELETE CASCADE
);

-- What the agents of the configuration file are and were. A row never changes.
CREATE TABLE declared_versions (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  agent      text COLLATE "C" NOT NULL, -- id, which is the name
  version    bigint           NOT NULL, -- from 1 on
  definition text COLLATE "C" NOT NULL, -- JSON
  principal  text COLLATE "C" NOT NULL, -- the operator
  created_at bigint           NOT NULL,
  PRIMARY KEY (org, agent, version)
);

-- The custom tools that agents can have. Agents name them by their ids in their definitions.
CREATE TABLE tools (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id         text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  definition text COLLATE "C" NOT NULL, -- JSON
  created_at bigint           NOT NULL,
  updated_at bigint           NOT NULL,
  PRIMARY KEY (org, id)
);
CREATE UNIQUE INDEX tools_name ON tools (org, name);

-- Settings of orgs for their agents. Secret ones are in the table secrets.
CREATE TABLE agent_settings (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  key        text COLLATE "C" NOT NULL,
  value      text COLLATE "C" NOT NULL,
  updated_at bigint           NOT NULL,
  PRIMARY KEY (org, key)
);

-- Conversations of one agent and one principal. The status of a session is that of its latest run.
CREATE TABLE sessions (
  org           text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id            text COLLATE "C" NOT NULL,
  agent         text COLLATE "C" NOT NULL, -- also one that the configuration file declares
  principal     text COLLATE "C" NOT NULL, -- whose session it is
  pinned        bigint           NOT NULL, -- 0 = it follows its agent
  snapshot      text COLLATE "C" NOT NULL, -- JSON; of the latest turn, or with which it was created
  title         text COLLATE "C" NOT NULL DEFAULT '',
  metadata      text COLLATE "C" NOT NULL DEFAULT '{}', -- JSON
  turns         bigint           NOT NULL DEFAULT 0,
  run_id        text COLLATE "C" NOT NULL DEFAULT '', -- of the latest turn
  active_ms     bigint           NOT NULL DEFAULT 0, -- of its runs that have ended
  cost_nano_usd bigint           NOT NULL DEFAULT 0, -- of its runs that have ended and whose cost is known
  created_at    bigint           NOT NULL,
  updated_at    bigint           NOT NULL,
  PRIMARY KEY (org, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX sessions_agent ON sessions (org, agent, updated_at, id);

-- The runs of sessions.
CREATE TABLE session_turns (
  org        text COLLATE "C" NOT NULL,
  run_id     text COLLATE "C" NOT NULL,
  session    text COLLATE "C" NOT NULL,
  number     bigint           NOT NULL, -- from 1 on, in the session
  version    bigint           NOT NULL, -- of the agent
  rounds     bigint           NOT NULL, -- that it may have
  reasoning  bigint           NOT NULL, -- 1 = the client has asked for the reasoning of the model
  snapshot   text COLLATE "C", -- JSON; of the agent of a turn that was queued; NULL = that of the session when the turn began
  created_at bigint           NOT NULL,
  PRIMARY KEY (org, run_id),
  UNIQUE (org, session, number),
  FOREIGN KEY (org, session) REFERENCES sessions (org, id) ON DELETE CASCADE
);

-- The inboxes of sessions. A row that was delivered never changes again.
CREATE TABLE session_inputs (
  seq          bigint           GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- the order of all inputs
  org          text COLLATE "C" NOT NULL,
  session      text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL, -- also that of its event
  kind         text COLLATE "C" NOT NULL,
  principal    text COLLATE "C" NOT NULL, -- who sent it
  body         text COLLATE "C" NOT NULL, -- JSON
  key          text COLLATE "C", -- the Idempotency-Key of its batch; NULL = it has none, or is not the first of the batch
  digest       text COLLATE "C" NOT NULL DEFAULT '', -- of the batch
  run_id       text COLLATE "C" NOT NULL DEFAULT '', -- that it was delivered to
  created_at   bigint           NOT NULL, -- strictly rising in a session
  processed_at bigint, -- NULL while it waits
  UNIQUE (org, id),
  UNIQUE (org, session, key),
  FOREIGN KEY (org, session) REFERENCES sessions (org, id) ON DELETE CASCADE
);
CREATE INDEX session_inputs_session ON session_inputs (org, session, seq);
CREATE INDEX session_inputs_waiting ON session_inputs (org, session, seq) WHERE processed_at IS NULL;
-- The inputs that wait for the run of a turn: a message until the run begins, an interrupt until the run ends.
CREATE INDEX session_inputs_of_run ON session_inputs (org, run_id) WHERE processed_at IS NULL;
CREATE INDEX session_inputs_interrupts ON session_inputs (seq) WHERE processed_at IS NULL AND kind = 'interrupt';

-- The conversation of a session is deleted with it, and never before. It is stored under the keys that
-- package conversation makes of the ids of sessions and runs.
CREATE FUNCTION sessions_conversation() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = 'session:' || old.id;
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = 'session:items_' || substr(old.id, 6)
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = conversations.org AND s.part = conversations.key);
  RETURN NULL;
END $$;
CREATE TRIGGER sessions_conversation AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION sessions_conversation();
CREATE FUNCTION session_turns_conversation() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND (key = 'response:resp_' || substr(old.run_id, 5)
    OR key > 'response:resp_' || substr(old.run_id, 5) || 'p' AND key < 'response:resp_' || substr(old.run_id, 5) || 'q')
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = conversations.org AND s.part = conversations.key);
  RETURN NULL;
END $$;
CREATE TRIGGER session_turns_conversation AFTER DELETE ON session_turns FOR EACH ROW EXECUTE FUNCTION session_turns_conversation();
CREATE FUNCTION session_turns_orphan() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO orphaned_runs (org, run_id)
    SELECT org, run_id FROM runs WHERE org = old.org AND run_id = old.run_id AND status <> 'done'
    ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER session_turns_orphan AFTER DELETE ON session_turns FOR EACH ROW EXECUTE FUNCTION session_turns_orphan();

-- Files ----------------------------------------------------------------------------------------

-- What is known of the files of keys. Their content is in the data directory.
CREATE TABLE files (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id         text COLLATE "C" NOT NULL, -- its order is that of creation
  principal  text COLLATE "C" NOT NULL, -- whose file it is
  name       text COLLATE "C" NOT NULL,
  media_type text COLLATE "C" NOT NULL DEFAULT '',
  purpose    text COLLATE "C" NOT NULL,
  bytes      bigint           NOT NULL,
  sha256     text COLLATE "C" NOT NULL,
  container  text COLLATE "C" NOT NULL DEFAULT '', -- id of the container whose code has made it; '' = it was uploaded
  path       text COLLATE "C" NOT NULL DEFAULT '', -- in the working directory of that code
  created_at bigint           NOT NULL,
  expires_at bigint           NOT NULL, -- 0 = never
  expired    bigint           NOT NULL DEFAULT 0, -- 1 = its content was deleted because its time was over
  PRIMARY KEY (org, id)
);
CREATE INDEX files_principal ON files (org, principal, id);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at > 0;
CREATE INDEX files_container ON files (org, container, id) WHERE container <> '';

-- Webhooks -------------------------------------------------------------------------------------

-- Where the events of orgs are sent.
CREATE TABLE webhooks (
  org            text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name           text COLLATE "C" NOT NULL,
  url            text COLLATE "C" NOT NULL,
  events         text COLLATE "C" NOT NULL, -- JSON: patterns
  sealed         bytea            NOT NULL, -- the secret that signs; opens with the operator's master key, under this org and name only
  previous       bytea            NOT NULL DEFAULT '\x', -- the secret before the latest rotation, sealed; empty = none
  previous_until bigint           NOT NULL DEFAULT 0,
  stopped        text COLLATE "C" NOT NULL DEFAULT '', -- why nothing is sent; empty = it is
  created_at     bigint           NOT NULL,
  updated_at     bigint           NOT NULL,
  waiting        bigint           NOT NULL DEFAULT 0, -- messages: the triggers below count
  given_up       bigint           NOT NULL DEFAULT 0, -- messages since it was created
  PRIMARY KEY (org, name)
);
CREATE INDEX webhooks_waiting ON webhooks (org, name) WHERE waiting > 0;

-- Messages for webhooks, one for each event and webhook. The rowid grows: of two, the one whose
-- event happened first has the least.
CREATE TABLE outbox (
  org           text COLLATE "C" NOT NULL,
  id            text COLLATE "C" NOT NULL, -- the webhook-id
  webhook       text COLLATE "C" NOT NULL,
  event         text COLLATE "C" NOT NULL,
  object        text COLLATE "C" NOT NULL,
  subject       text COLLATE "C" NOT NULL, -- messages with the same one are delivered in order
  at            bigint           NOT NULL, -- when it happened
  outcome       text COLLATE "C" NOT NULL DEFAULT 'waiting', -- waiting, delivered, given_up
  attempts      bigint           NOT NULL DEFAULT 0,
  next_at       bigint           NOT NULL,
  give_up_at    bigint           NOT NULL,
  claimed_until bigint           NOT NULL DEFAULT 0,
  ended_at      bigint           NOT NULL DEFAULT 0, -- 0 = it waits
  status        bigint           NOT NULL DEFAULT 0,
  error         text COLLATE "C" NOT NULL DEFAULT '',
  rowid         bigint           NOT NULL GENERATED BY DEFAULT AS IDENTITY,
  PRIMARY KEY (org, id),
  FOREIGN KEY (org, webhook) REFERENCES webhooks (org, name) ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX outbox_rowid ON outbox (org, webhook, rowid);
CREATE INDEX outbox_due ON outbox (org, webhook, ended_at, next_at, rowid);
CREATE INDEX outbox_oldest ON outbox (org, webhook, at, rowid) WHERE ended_at = 0;
CREATE INDEX outbox_subject ON outbox (org, webhook, subject, rowid) WHERE ended_at = 0;
CREATE INDEX outbox_claimed ON outbox (claimed_until) WHERE claimed_until > 0;
CREATE INDEX outbox_ended ON outbox (ended_at) WHERE ended_at > 0;

CREATE FUNCTION outbox_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  UPDATE webhooks SET waiting = waiting + 1 WHERE org = new.org AND name = new.webhook;
  RETURN NULL;
END $$;
CREATE TRIGGER outbox_added AFTER INSERT ON outbox FOR EACH ROW
  WHEN (new.ended_at = 0) EXECUTE FUNCTION outbox_added();
CREATE FUNCTION outbox_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  UPDATE webhooks SET waiting = waiting + CASE WHEN new.ended_at = 0 THEN 1 ELSE -1 END,
    given_up = given_up + CASE WHEN new.outcome = 'given_up' THEN 1 ELSE 0 END
  WHERE org = new.org AND name = new.webhook;
  RETURN NULL;
END $$;
CREATE TRIGGER outbox_changed AFTER UPDATE OF ended_at ON outbox FOR EACH ROW
  WHEN ((old.ended_at = 0) <> (new.ended_at = 0)) EXECUTE FUNCTION outbox_changed();
CREATE FUNCTION outbox_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, webhook, count(*) AS n FROM gone WHERE ended_at = 0 GROUP BY 1, 2 ORDER BY 1, 2 LOOP
    UPDATE webhooks SET waiting = waiting - g.n WHERE org = g.org AND name = g.webhook;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER outbox_deleted AFTER DELETE ON outbox REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION outbox_deleted();

-- Budgets --------------------------------------------------------------------------------------

-- What the windows of budgets (a day, a month, or all time) have been charged with. Amounts are
-- tokens and 10⁻⁹ US dollars.
CREATE TABLE budgets (
  org               text COLLATE "C" NOT NULL,
  scope             text COLLATE "C" NOT NULL, -- whose, the period, and the day or month
  spent_tokens      bigint           NOT NULL,
  spent_nano_usd    bigint           NOT NULL,
  reserved_tokens   bigint           NOT NULL, -- the sum of the reservations in the scope that are open
  reserved_nano_usd bigint           NOT NULL,
  overrun_tokens    bigint           NOT NULL, -- the part of what is spent that exceeded its reservations
  overrun_nano_usd  bigint           NOT NULL,
  limit_tokens      bigint           NOT NULL, -- when something was last reserved; 0 = no limit
  limit_nano_usd    bigint           NOT NULL,
  ends_at           bigint           NOT NULL, -- of the window; 0 = never
  told              bigint           NOT NULL, -- percent of which the audit log says that it was reached
  PRIMARY KEY (org, scope)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX budgets_ended ON budgets (ends_at) WHERE ends_at > 0;

-- What processes have drawn of budgets and not spent. It counts as reserved. The columns spent_tokens
-- and spent_nano_usd are what was spent of the slice since it was made.
CREATE TABLE slices (
  org            text COLLATE "C" NOT NULL,
  scope          text COLLATE "C" NOT NULL,
  owner          text COLLATE "C" NOT NULL,
  drawn_tokens   bigint           NOT NULL,
  drawn_nano_usd bigint           NOT NULL,
  spent_tokens   bigint           NOT NULL,
  spent_nano_usd bigint           NOT NULL,
  PRIMARY KEY (org, scope, owner),
  FOREIGN KEY (org, scope) REFERENCES budgets (org, scope) ON DELETE CASCADE
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE reservations (
  org      text COLLATE "C" NOT NULL,
  run_id   text COLLATE "C" NOT NULL,
  id       text COLLATE "C" NOT NULL,
  scope    text COLLATE "C" NOT NULL,
  tokens   bigint           NOT NULL,
  nano_usd bigint           NOT NULL,
  epoch    bigint           NOT NULL, -- of the lease under which it was made
  PRIMARY KEY (org, run_id, id, scope),
  FOREIGN KEY (org, scope) REFERENCES budgets (org, scope)
);

-- How much an org stores -----------------------------------------------------------------------

-- How much of an org's is stored, so that it need not be counted: of runs with their facts and
-- rows, and of conversations. The gateway adds what it inserts; the triggers subtract what is
-- deleted, also by a cascade: once for each statement, because each change of a row leaves a version
-- of it that the next one has to pass. Bytes are those of a body, and for each row a constant for its
-- columns, its keys and its place in the indexes: those of usage.go.
CREATE TABLE org_usage (
  org           text COLLATE "C" NOT NULL PRIMARY KEY,
  bytes         bigint           NOT NULL,
  conversations bigint           NOT NULL,
  handovers     bigint           NOT NULL DEFAULT 0 -- conversations of calls, which have a cap of their own
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE FUNCTION runs_usage() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, 500 * count(*) AS bytes FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE org_usage SET bytes = bytes - g.bytes WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER runs_usage AFTER DELETE ON runs REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION runs_usage();
CREATE FUNCTION run_facts_usage() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, sum(250 + octet_length(body)) AS bytes FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE org_usage SET bytes = bytes - g.bytes WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER run_facts_usage AFTER DELETE ON run_facts REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION run_facts_usage();
CREATE FUNCTION run_rows_usage() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, sum(160 + octet_length(body)) AS bytes FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE org_usage SET bytes = bytes - g.bytes WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER run_rows_usage AFTER DELETE ON run_rows REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION run_rows_usage();
CREATE FUNCTION conversations_usage() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, sum(250 + octet_length(body)) AS bytes, count(*) AS n,
      count(*) FILTER (WHERE substr(key, 1, 5) = 'call:') AS calls FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE org_usage SET bytes = bytes - g.bytes, conversations = conversations - g.n, handovers = handovers - g.calls
      WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER conversations_usage AFTER DELETE ON conversations REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION conversations_usage();
CREATE FUNCTION conversations_replaced() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  UPDATE org_usage SET bytes = bytes - octet_length(old.body) WHERE org = old.org;
  RETURN NULL;
END $$;
CREATE TRIGGER conversations_replaced AFTER UPDATE OF body ON conversations FOR EACH ROW EXECUTE FUNCTION conversations_replaced();
CREATE FUNCTION conversation_keys_usage() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, 300 * count(*) AS bytes FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE org_usage SET bytes = bytes - g.bytes WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER conversation_keys_usage AFTER DELETE ON conversation_keys REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION conversation_keys_usage();

-- Answers of tools -----------------------------------------------------------------------------

-- What tools have answered. The rowid grows: the oldest entry has the least.
CREATE TABLE tool_cache (
  org        text COLLATE "C" NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       bytea            NOT NULL, -- SHA-256 of what was called
  kept_at    bigint           NOT NULL,
  expires_at bigint           NOT NULL,
  mac        bytea            NOT NULL, -- over all of it and the org, under a key that is not in this file
  bytes      bigint           NOT NULL, -- of value
  value      bytea            NOT NULL,
  rowid      bigint           NOT NULL GENERATED BY DEFAULT AS IDENTITY,
  PRIMARY KEY (org, name)
);
CREATE INDEX tool_cache_oldest ON tool_cache (org, rowid);
CREATE INDEX tool_cache_expire ON tool_cache (expires_at);

-- How much of each org's is in tool_cache.
CREATE TABLE tool_cache_sizes (
  org     text COLLATE "C" NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
  entries bigint           NOT NULL,
  bytes   bigint           NOT NULL
);
CREATE FUNCTION tool_cache_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO tool_cache_sizes AS s (org, entries, bytes) VALUES (new.org, 1, new.bytes)
  ON CONFLICT (org) DO UPDATE SET entries = s.entries + 1, bytes = s.bytes + excluded.bytes;
  RETURN NULL;
END $$;
CREATE TRIGGER tool_cache_kept AFTER INSERT ON tool_cache FOR EACH ROW EXECUTE FUNCTION tool_cache_kept();
CREATE FUNCTION tool_cache_dropped() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE g record; BEGIN
  FOR g IN SELECT org, count(*) AS n, sum(bytes) AS bytes FROM gone GROUP BY 1 ORDER BY 1 LOOP
    UPDATE tool_cache_sizes SET entries = entries - g.n, bytes = bytes - g.bytes WHERE org = g.org;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER tool_cache_dropped AFTER DELETE ON tool_cache REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION tool_cache_dropped();

-- The audit log and its sums -------------------------------------------------------------------

CREATE TABLE audit_log (
  org        text COLLATE "C" NOT NULL,
  n          bigint           NOT NULL, -- 1, 2, 3 … in the org, without gaps
  at         bigint           NOT NULL,
  kind       text COLLATE "C" NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  run_id     text COLLATE "C" NOT NULL, -- empty for a relay
  request_id text COLLATE "C" NOT NULL,
  body       bytea            NOT NULL, -- JSON
  hash       bytea            NOT NULL, -- of the row and the hash of the row before
  PRIMARY KEY (org, n)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
-- Also finds a run: its requests are the run's id, with and without .n.
CREATE INDEX audit_log_request ON audit_log (org, request_id);
-- The kinds that are rare. A statement uses it only if it names the index and repeats the condition.
CREATE INDEX audit_log_rare ON audit_log (org, kind, n)
  WHERE kind NOT IN ('audit_log.request', 'audit_log.agent.tool_call', 'audit_log.mcp.tool_call', 'audit_log.resource.call');

-- Signed with a key that is not in this file. Of several at one row, all count.
CREATE TABLE audit_checkpoints (
  org       text COLLATE "C" NOT NULL,
  n         bigint           NOT NULL, -- the last row that it speaks of
  cut       bigint           NOT NULL, -- 1: the rows up to n are gone
  at        bigint           NOT NULL,
  hash      bytea            NOT NULL,
  signature bytea            NOT NULL,
  PRIMARY KEY (org, n, cut)
);

-- What the rows of the audit log add up to. A sum is kept for each combination of the columns of its
-- key. It is written in the transaction of its rows and outlives them.
CREATE TABLE usage_sums (
  org                text COLLATE "C" NOT NULL,
  day                bigint           NOT NULL, -- since 1970-01-01, in UTC
  end_user           text COLLATE "C" NOT NULL, -- empty = nobody, or several; third, so that it is known whether an end user has a sum
  rest               bigint           NOT NULL, -- 1 = end_user is several, 2 = model and target are several, 3 = both; 0 = neither
  principal          text COLLATE "C" NOT NULL,
  model              text COLLATE "C" NOT NULL, -- the client's name
  provider           text COLLATE "C" NOT NULL,
  target             text COLLATE "C" NOT NULL, -- the provider's name of the model
  surface            text COLLATE "C" NOT NULL,
  agent              text COLLATE "C" NOT NULL,
  first_n            bigint           NOT NULL, -- the rows in it have numbers from first_n to last_n
  last_n             bigint           NOT NULL,
  requests           bigint           NOT NULL DEFAULT 0,
  tool_calls         bigint           NOT NULL DEFAULT 0,
  gpu_ms             bigint           NOT NULL DEFAULT 0,
  input_tokens       bigint           NOT NULL DEFAULT 0,
  cached_tokens      bigint           NOT NULL DEFAULT 0,
  cache_write_tokens bigint           NOT NULL DEFAULT 0,
  output_tokens      bigint           NOT NULL DEFAULT 0,
  reasoning_tokens   bigint           NOT NULL DEFAULT 0,
  nano_usd           bigint           NOT NULL DEFAULT 0, -- with tool_nano_usd
  tool_nano_usd      bigint           NOT NULL DEFAULT 0,
  estimated_input    bigint           NOT NULL DEFAULT 0, -- the parts of the sums that the gateway has estimated
  estimated_output   bigint           NOT NULL DEFAULT 0,
  estimated_nano_usd bigint           NOT NULL DEFAULT 0,
  PRIMARY KEY (org, day, end_user, rest, principal, model, provider, target, surface, agent)
);

-- How many names the sums of a day have. Further ones are added up together.
CREATE TABLE usage_days (
  org       text COLLATE "C" NOT NULL,
  day       bigint           NOT NULL,
  end_users bigint           NOT NULL,
  models    bigint           NOT NULL,
  PRIMARY KEY (org, day)
);

-- The models of usage_days. An end user is found in the primary key of usage_sums.
CREATE TABLE usage_models (
  org   text COLLATE "C" NOT NULL,
  day   bigint           NOT NULL,
  model text COLLATE "C" NOT NULL,
  PRIMARY KEY (org, day, model)
);

-- Since when the estimated parts of usage_sums are known, in Unix milliseconds. No row: since the first sum.
CREATE TABLE usage_estimates (
  since bigint NOT NULL
);

-- Replicas -------------------------------------------------------------------------------------

-- The processes that share the schema.
CREATE TABLE replicas (
  id         text COLLATE "C" NOT NULL PRIMARY KEY, -- the configured one and that of the start of the process
  seen_at    bigint           NOT NULL, -- of the last beat, by the clock of the server
  started_at bigint           NOT NULL,
  applied    bigint           NOT NULL DEFAULT 0, -- the epoch of the settings that the replica has
  version    text COLLATE "C" NOT NULL DEFAULT '', -- of the program
  draining   bigint           NOT NULL DEFAULT 0 -- 1 = it takes no further work
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Counts the changes of what replicas keep in memory: settings, keys, servers, budgets. One row.
CREATE TABLE settings_epoch (
  one   bigint NOT NULL DEFAULT 1 PRIMARY KEY CHECK (one = 1),
  epoch bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
INSERT INTO settings_epoch (epoch) VALUES (1);

-- In which epoch what an org has was changed last.
CREATE TABLE settings_changes (
  org   text COLLATE "C" NOT NULL PRIMARY KEY,
  epoch bigint           NOT NULL
);
CREATE INDEX settings_changes_epoch ON settings_changes (epoch);

-- What all replicas must have alike, and what they share.
CREATE TABLE installation (
  name   text COLLATE "C" NOT NULL PRIMARY KEY,
  salt   bytea            NOT NULL DEFAULT '\x',
  digest bytea            NOT NULL DEFAULT '\x', -- of a configured secret, with the salt; empty = it is none
  sealed bytea            NOT NULL DEFAULT '\x', -- opens with the operator's master key; empty = nothing is kept
  state  text COLLATE "C" NOT NULL DEFAULT ''
);

-- What one replica does for all of them.
CREATE TABLE duties (
  name  text COLLATE "C" NOT NULL PRIMARY KEY,
  owner text COLLATE "C" NOT NULL, -- the id of a replica
  until bigint           NOT NULL -- then another may take it
) WITH (fillfactor = 50);

-- The content of files, in pieces. They are stored before the row of their file.
CREATE TABLE file_chunks (
  org  text COLLATE "C" NOT NULL,
  id   text COLLATE "C" NOT NULL,
  n    bigint           NOT NULL, -- 0, 1, 2 …
  body bytea            NOT NULL,
  PRIMARY KEY (org, id, n)
);
ALTER TABLE file_chunks ALTER COLUMN body SET STORAGE EXTERNAL; -- files are mostly compressed, and read in pieces

-- The files of buckets, a row for each content: writing until its file has a name, stored, and deleted until its chunks are.
CREATE TABLE bucket_files (
  org    text COLLATE "C" NOT NULL,
  space  bigint NOT NULL,
  id     text COLLATE "C" NOT NULL,
  bucket text COLLATE "C" NOT NULL,
  path   text COLLATE "C" NOT NULL,
  bytes  bigint NOT NULL,
  sha256 text COLLATE "C" NOT NULL,
  state  text COLLATE "C" NOT NULL CHECK (state IN ('writing', 'stored', 'deleted')),
  at     bigint NOT NULL,
  PRIMARY KEY (org, space, id)
);
CREATE UNIQUE INDEX bucket_files_stored ON bucket_files (org, space, bucket, path) WHERE state = 'stored';
CREATE INDEX bucket_files_writing ON bucket_files (at, id) WHERE state = 'writing';
CREATE INDEX bucket_files_deleted ON bucket_files (at, id) WHERE state = 'deleted';

-- The lowest version of the schema whose build may work with this one. One row. A migration that takes
-- away what builds before it use raises it.
CREATE TABLE schema_oldest (
  oldest bigint NOT NULL
);
INSERT INTO schema_oldest (oldest) VALUES (100);

-- Owners of runs that are alive: until when, by the clock of leases.
CREATE TABLE owners (
  owner text COLLATE "C" NOT NULL PRIMARY KEY,
  until bigint           NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Functions ------------------------------------------------------------------------------------

-- What SQLite has and the statements use: see package database, translate.go.
CREATE FUNCTION max(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT greatest(a, b)';
CREATE FUNCTION min(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT least(a, b)';
CREATE FUNCTION instr(a text, b text) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT strpos(a, b)';

-- The elements of a list, with their places; none of null.
CREATE FUNCTION json_each(doc text) RETURNS TABLE (key bigint, value text) LANGUAGE sql IMMUTABLE ROWS 10
  AS 'SELECT e.place - 1, e.value FROM json_array_elements_text(CASE WHEN doc = ''null'' THEN ''[]'' ELSE doc END::json) WITH ORDINALITY AS e (value, place)';
CREATE FUNCTION json_each(doc text, path text) RETURNS TABLE (key bigint, value text) LANGUAGE sql IMMUTABLE ROWS 10
  AS 'SELECT e.place - 1, e.value FROM json_array_elements_text(coalesce(json_extract_path(doc::json, VARIADIC string_to_array(substr(path, 3), ''.'')), ''[]''))
    WITH ORDINALITY AS e (value, place)';

-- A member of an object, as text.
CREATE FUNCTION json_extract(doc text, path text) RETURNS text LANGUAGE sql IMMUTABLE
  AS 'SELECT json_extract_path_text(doc::json, VARIADIC string_to_array(substr(path, 3), ''.''))';
CREATE FUNCTION json_extract(doc bytea, path text) RETURNS text LANGUAGE sql IMMUTABLE
  AS 'SELECT json_extract_path_text(convert_from(doc, ''UTF8'')::json, VARIADIC string_to_array(substr(path, 3), ''.''))';
CREATE FUNCTION json_array_length(doc bytea, path text) RETURNS integer LANGUAGE sql IMMUTABLE
  AS 'SELECT CASE json_typeof(e.list) WHEN ''array'' THEN json_array_length(e.list) END
    FROM (SELECT json_extract_path(convert_from(doc, ''UTF8'')::json, VARIADIC string_to_array(substr(path, 3), ''.'')) AS list) AS e';
-- +goose StatementEnd
