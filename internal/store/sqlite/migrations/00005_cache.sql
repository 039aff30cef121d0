-- +goose Up
-- +goose StatementBegin
ALTER TABLE mcp_outbound_servers ADD COLUMN cache TEXT NOT NULL DEFAULT '{}'; -- JSON

-- What tools have answered. The rowid grows: the oldest entry has the least.
CREATE TABLE tool_cache (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  name       BLOB    NOT NULL, -- SHA-256 of what was called
  kept_at    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  mac        BLOB    NOT NULL, -- over all of it and the org, under a key that is not in this file
  bytes      INTEGER NOT NULL, -- of value
  value      BLOB    NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;
CREATE INDEX tool_cache_oldest ON tool_cache (org);
CREATE INDEX tool_cache_expire ON tool_cache (expires_at);

-- How much of each org's is in tool_cache, so that nobody has to count.
CREATE TABLE tool_cache_sizes (
  org     TEXT    NOT NULL PRIMARY KEY REFERENCES orgs (id) ON DELETE CASCADE,
  entries INTEGER NOT NULL,
  bytes   INTEGER NOT NULL
) STRICT;

CREATE TRIGGER tool_cache_kept AFTER INSERT ON tool_cache BEGIN
  INSERT INTO tool_cache_sizes (org, entries, bytes) VALUES (new.org, 1, new.bytes)
  ON CONFLICT (org) DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER tool_cache_dropped AFTER DELETE ON tool_cache BEGIN
  UPDATE tool_cache_sizes SET entries = entries - 1, bytes = bytes - old.bytes WHERE org = old.org;
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE tool_cache;
DROP TABLE tool_cache_sizes;
ALTER TABLE mcp_outbound_servers DROP COLUMN cache;
-- +goose StatementEnd
