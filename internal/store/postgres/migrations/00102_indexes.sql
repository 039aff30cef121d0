-- Indexes for the leases of a replica, and for what of an org has expired. They are made while other replicas write.

-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
DROP INDEX CONCURRENTLY IF EXISTS runs_owner;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE INDEX CONCURRENTLY runs_owner ON runs (owner) WHERE status = 'running';
-- +goose StatementEnd
-- +goose StatementBegin
DROP INDEX CONCURRENTLY IF EXISTS conversations_org_expire;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE INDEX CONCURRENTLY conversations_org_expire ON conversations (org, expires_at);
-- +goose StatementEnd
-- +goose StatementBegin
DROP INDEX CONCURRENTLY IF EXISTS tool_cache_org_expire;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE INDEX CONCURRENTLY tool_cache_org_expire ON tool_cache (org, expires_at);
-- +goose StatementEnd
