-- +goose Up
-- +goose StatementBegin
-- Where a file that code has made comes from; '' = it was uploaded, or is older.
ALTER TABLE files ADD COLUMN container TEXT NOT NULL DEFAULT ''; -- id
ALTER TABLE files ADD COLUMN path TEXT NOT NULL DEFAULT ''; -- in the working directory
CREATE INDEX files_container ON files (org, container, id) WHERE container <> '';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX files_container;
ALTER TABLE files DROP COLUMN path;
ALTER TABLE files DROP COLUMN container;
-- +goose StatementEnd
