-- +goose Up
-- +goose StatementBegin
-- Conversations of one agent and one principal. The status of a session is that of its latest run.
CREATE TABLE sessions (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  id         TEXT    NOT NULL,
  agent      TEXT    NOT NULL, -- also one that the configuration file declares
  principal  TEXT    NOT NULL, -- whose session it is
  pinned     INTEGER NOT NULL, -- 0 = it follows its agent
  snapshot   TEXT    NOT NULL, -- JSON; of the latest turn, or with which it was created
  title      TEXT    NOT NULL DEFAULT '',
  metadata   TEXT    NOT NULL DEFAULT '{}', -- JSON
  turns      INTEGER NOT NULL DEFAULT 0,
  run_id     TEXT    NOT NULL DEFAULT '', -- of the latest turn
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
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

-- The conversation of a session is deleted with it, and never before. It is stored under the keys that
-- package conversation makes of the ids of sessions and runs.
CREATE TRIGGER sessions_conversation AFTER DELETE ON sessions BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key IN ('session:' || old.id, 'session:items_' || substr(old.id, 6));
END;
CREATE TRIGGER session_turns_conversation AFTER DELETE ON session_turns BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND (key = 'response:resp_' || substr(old.run_id, 5)
    OR key > 'response:resp_' || substr(old.run_id, 5) || 'p' AND key < 'response:resp_' || substr(old.run_id, 5) || 'q');
END;
-- Those that are kept: see journal.Kept.
CREATE INDEX conversations_kept ON conversations (org) WHERE expires_at >= 7000000000000;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX conversations_kept;
DROP TRIGGER session_turns_conversation;
DROP TRIGGER sessions_conversation;
DROP TABLE session_inputs;
DROP TABLE session_turns;
DROP TABLE sessions;
-- +goose StatementEnd
