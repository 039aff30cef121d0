-- +goose Up
-- +goose StatementBegin
-- A run whose journal cannot be decoded has the status set_aside: nobody claims it.
ALTER TABLE runs ADD COLUMN aside TEXT NOT NULL DEFAULT '{}'; -- JSON; why
CREATE INDEX runs_aside ON runs (org, run_id) WHERE status = 'set_aside';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX runs_aside;
ALTER TABLE runs DROP COLUMN aside;
-- +goose StatementEnd
