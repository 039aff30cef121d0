-- +goose Up
-- +goose StatementBegin
-- The runs that wait for a slot. The principal is there for counts by principal.
CREATE INDEX runs_queued ON runs (org, created_at, run_id, principal) WHERE status = 'queued';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX runs_queued;
-- +goose StatementEnd
