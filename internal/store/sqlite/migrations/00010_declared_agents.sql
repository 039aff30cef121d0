-- +goose Up
-- +goose StatementBegin
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
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE declared_versions;
-- +goose StatementEnd
