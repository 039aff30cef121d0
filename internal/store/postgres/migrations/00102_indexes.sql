-- Indexes for the leases of a replica, and for what of an org has expired. They are made while other replicas write.
-- Each statement waits until all transactions that began before it are over, those of other programs in this database, too. Nobody
-- waits behind it, so it may wait for longer than for a lock on a table.

-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
SET lock_timeout = '60s';
-- +goose StatementEnd
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
-- +goose StatementBegin
RESET lock_timeout;
-- +goose StatementEnd
