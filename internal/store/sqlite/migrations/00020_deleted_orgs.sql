-- +goose Up
-- +goose StatementBegin
-- Orgs that were deleted and of which something is stored that retention has to delete.
CREATE TABLE deleted_orgs (
  org        TEXT    NOT NULL PRIMARY KEY,
  deleted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE deleted_orgs;
-- +goose StatementEnd
