-- +goose Up
-- +goose StatementBegin
-- Where an approved call goes; '' = a program, the gateway itself, or not known.
ALTER TABLE approvals ADD COLUMN host TEXT NOT NULL DEFAULT '';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE approvals DROP COLUMN host;
-- +goose StatementEnd
