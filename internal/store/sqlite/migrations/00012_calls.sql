-- +goose Up
-- +goose StatementBegin
-- max_concurrent_calls replaces concurrency, whose default was 10.
ALTER TABLE mcp_outbound_servers ADD COLUMN max_concurrent_calls INTEGER NOT NULL DEFAULT 256;
UPDATE mcp_outbound_servers SET max_concurrent_calls = concurrency WHERE concurrency <> 10;
ALTER TABLE mcp_outbound_servers DROP COLUMN concurrency;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE mcp_outbound_servers ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 10;
UPDATE mcp_outbound_servers SET concurrency = min(max_concurrent_calls, 1000) WHERE max_concurrent_calls <> 256;
ALTER TABLE mcp_outbound_servers DROP COLUMN max_concurrent_calls;
-- +goose StatementEnd
