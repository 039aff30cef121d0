-- +goose Up
-- +goose StatementBegin
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
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, -- 0 = never
  expired    INTEGER NOT NULL DEFAULT 0, -- 1 = its content was deleted because its time was over
  PRIMARY KEY (org, id)
) STRICT;
CREATE INDEX files_principal ON files (org, principal, id);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at > 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE files;
-- +goose StatementEnd
