-- +goose Up
-- +goose StatementBegin
CREATE TABLE secrets (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       TEXT    NOT NULL,
  sealed     BLOB    NOT NULL, -- opens with the operator's master key, under this org and name only
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE secrets;
-- +goose StatementEnd
