-- +goose Up
-- +goose StatementBegin
-- No query used it: the rows of an org are read in the order of n.
DROP INDEX audit_log_at;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE INDEX audit_log_at ON audit_log (org, at);
-- +goose StatementEnd
