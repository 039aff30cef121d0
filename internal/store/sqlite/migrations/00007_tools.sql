-- +goose Up
-- +goose StatementBegin
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
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE tools;
-- +goose StatementEnd
