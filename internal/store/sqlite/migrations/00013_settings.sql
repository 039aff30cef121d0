-- The settings of an MCP server are one JSON object, so that a new setting needs no
-- migration.
-- +goose Up
-- +goose StatementBegin
ALTER TABLE mcp_outbound_servers ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'; -- JSON; secrets by reference

UPDATE mcp_outbound_servers SET settings = json_object(
  'url', url,
  'enabled', json(iif(enabled, 'true', 'false')),
  'tools', json(tools),
  'headers', json(headers),
  'timeout_ns', timeout_ms * 1000000,
  'max_retries', max_retries,
  'required', json(iif(required, 'true', 'false')),
  'trust', json(iif(trust, 'true', 'false')),
  'naming', naming,
  'prefix', prefix,
  'polling', json(polling),
  'reads', json(reads),
  'keyed', json(keyed),
  'cache', json(cache),
  'max_concurrent_calls', max_concurrent_calls);

ALTER TABLE mcp_outbound_servers DROP COLUMN url;
ALTER TABLE mcp_outbound_servers DROP COLUMN enabled;
ALTER TABLE mcp_outbound_servers DROP COLUMN tools;
ALTER TABLE mcp_outbound_servers DROP COLUMN headers;
ALTER TABLE mcp_outbound_servers DROP COLUMN timeout_ms;
ALTER TABLE mcp_outbound_servers DROP COLUMN max_retries;
ALTER TABLE mcp_outbound_servers DROP COLUMN required;
ALTER TABLE mcp_outbound_servers DROP COLUMN trust;
ALTER TABLE mcp_outbound_servers DROP COLUMN naming;
ALTER TABLE mcp_outbound_servers DROP COLUMN prefix;
ALTER TABLE mcp_outbound_servers DROP COLUMN polling;
ALTER TABLE mcp_outbound_servers DROP COLUMN reads;
ALTER TABLE mcp_outbound_servers DROP COLUMN keyed;
ALTER TABLE mcp_outbound_servers DROP COLUMN cache;
ALTER TABLE mcp_outbound_servers DROP COLUMN max_concurrent_calls;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE mcp_outbound_servers ADD COLUMN url         TEXT    NOT NULL DEFAULT '';
ALTER TABLE mcp_outbound_servers ADD COLUMN enabled     INTEGER NOT NULL DEFAULT 1;
ALTER TABLE mcp_outbound_servers ADD COLUMN tools       TEXT    NOT NULL DEFAULT 'null'; -- JSON; null = all
ALTER TABLE mcp_outbound_servers ADD COLUMN headers     TEXT    NOT NULL DEFAULT '{}'; -- JSON; secrets by reference
ALTER TABLE mcp_outbound_servers ADD COLUMN timeout_ms  INTEGER NOT NULL DEFAULT 30000;
ALTER TABLE mcp_outbound_servers ADD COLUMN max_retries INTEGER NOT NULL DEFAULT 2;
ALTER TABLE mcp_outbound_servers ADD COLUMN required    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mcp_outbound_servers ADD COLUMN trust       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mcp_outbound_servers ADD COLUMN naming      TEXT    NOT NULL DEFAULT 'bare';
ALTER TABLE mcp_outbound_servers ADD COLUMN prefix      TEXT    NOT NULL DEFAULT '';
ALTER TABLE mcp_outbound_servers ADD COLUMN polling     TEXT    NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE mcp_outbound_servers ADD COLUMN reads       TEXT    NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE mcp_outbound_servers ADD COLUMN keyed       TEXT    NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE mcp_outbound_servers ADD COLUMN cache       TEXT    NOT NULL DEFAULT '{}'; -- JSON
ALTER TABLE mcp_outbound_servers ADD COLUMN max_concurrent_calls INTEGER NOT NULL DEFAULT 256;

UPDATE mcp_outbound_servers SET
  url = settings ->> 'url', enabled = settings ->> 'enabled', tools = settings -> 'tools', headers = settings -> 'headers',
  timeout_ms = (settings ->> 'timeout_ns') / 1000000, max_retries = settings ->> 'max_retries', required = settings ->> 'required',
  trust = settings ->> 'trust', naming = settings ->> 'naming', prefix = settings ->> 'prefix', polling = settings -> 'polling',
  reads = settings -> 'reads', keyed = settings -> 'keyed', cache = settings -> 'cache', max_concurrent_calls = settings ->> 'max_concurrent_calls';

ALTER TABLE mcp_outbound_servers DROP COLUMN settings;
-- +goose StatementEnd
