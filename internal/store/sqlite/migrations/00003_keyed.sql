-- +goose Up
-- +goose StatementBegin
ALTER TABLE mcp_outbound_servers ADD COLUMN reads       TEXT    NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE mcp_outbound_servers ADD COLUMN keyed       TEXT    NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE mcp_outbound_servers ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 10;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE mcp_outbound_servers DROP COLUMN concurrency;
ALTER TABLE mcp_outbound_servers DROP COLUMN keyed;
ALTER TABLE mcp_outbound_servers DROP COLUMN reads;
-- +goose StatementEnd
