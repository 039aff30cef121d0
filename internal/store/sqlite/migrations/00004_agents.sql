-- +goose Up
-- +goose StatementBegin
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

-- Settings of orgs for their agents. Secret ones are in the table secrets.
CREATE TABLE agent_settings (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  key        TEXT    NOT NULL,
  value      TEXT    NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, key)
) STRICT;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE agent_settings;
DROP TABLE agent_versions;
DROP TABLE agents;
-- +goose StatementEnd
