-- The conversations that a program's agents have: see package sqlite. A turn is appended once: a run
-- that is resumed appends again what its last process may not have appended.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE agent_conversations (
  org                TEXT    NOT NULL,
  owner              TEXT    NOT NULL, -- the caller whose it is
  id                 TEXT    NOT NULL, -- of the session, or of the run without one
  title              TEXT    NOT NULL DEFAULT '',
  participants       TEXT    NOT NULL DEFAULT '[]', -- JSON
  metadata           TEXT    NOT NULL DEFAULT '{}', -- JSON
  summary            TEXT    NOT NULL DEFAULT '',
  summarized_through INTEGER NOT NULL DEFAULT 0, -- seq of the last turn that the summary stands for; 0 = none
  created_at         INTEGER NOT NULL,
  updated_at         INTEGER NOT NULL,
  expires_at         INTEGER NOT NULL, -- 0 = never
  PRIMARY KEY (org, owner, id)
) STRICT;
CREATE INDEX agent_conversations_expire ON agent_conversations (expires_at) WHERE expires_at > 0;
CREATE INDEX agent_conversations_latest ON agent_conversations (org, owner, updated_at, id);

CREATE TABLE agent_turns (
  seq          INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, -- the order of all turns
  org          TEXT    NOT NULL,
  owner        TEXT    NOT NULL,
  conversation TEXT    NOT NULL,
  run_id       TEXT    NOT NULL,
  number       INTEGER NOT NULL, -- in the run; 0 = its input
  role         TEXT    NOT NULL, -- user, assistant or tool
  items        TEXT    NOT NULL, -- JSON: messages, reasoning, tool calls and their results
  created_at   INTEGER NOT NULL,
  UNIQUE (org, run_id, number),
  FOREIGN KEY (org, owner, conversation) REFERENCES agent_conversations (org, owner, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX agent_turns_conversation ON agent_turns (org, owner, conversation, seq);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE agent_turns;
DROP TABLE agent_conversations;
-- +goose StatementEnd
