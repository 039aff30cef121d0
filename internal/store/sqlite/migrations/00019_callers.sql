-- +goose Up
-- +goose StatementBegin
-- The process whose client waits for the answer of the run; empty = somebody can come back for it.
ALTER TABLE approvals ADD COLUMN caller_at TEXT NOT NULL DEFAULT '';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE approvals DROP COLUMN caller_at;
-- +goose StatementEnd
