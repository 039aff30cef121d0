-- +goose Up
-- +goose StatementBegin
-- What retention deletes is found without looking at every run.
CREATE INDEX runs_finished ON runs (finished_at) WHERE status = 'done';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX runs_finished;
-- +goose StatementEnd
