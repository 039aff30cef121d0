-- +goose Up
-- What retention deletes is found without looking at every run.
CREATE INDEX runs_finished ON runs (finished_at) WHERE status = 'done';

-- +goose Down
DROP INDEX runs_finished;
