-- +goose Up
-- +goose StatementBegin
-- What callers do not send again, by call, response or session. Replaces handovers. A
-- conversation is stored once, under the least of its keys. A key is its kind, a colon
-- and its id.
CREATE TABLE conversations (
  org        TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  version    INTEGER NOT NULL, -- how often it was saved
  body       TEXT    NOT NULL, -- JSON
  saved_at   INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, principal, key)
) STRICT;
CREATE INDEX conversations_expire ON conversations (expires_at);
CREATE INDEX conversations_oldest ON conversations (org, saved_at);

CREATE TABLE conversation_keys (
  org          TEXT NOT NULL,
  principal    TEXT NOT NULL,
  key          TEXT NOT NULL,
  conversation TEXT NOT NULL,
  PRIMARY KEY (org, principal, key),
  FOREIGN KEY (org, principal, conversation) REFERENCES conversations (org, principal, key) ON DELETE CASCADE
) STRICT;
CREATE INDEX conversation_keys_conversation ON conversation_keys (org, principal, conversation);

INSERT INTO conversations (org, principal, key, version, body, saved_at, expires_at)
  SELECT org, principal, 'call:' || id, 1, body, expires_at - 86400000, expires_at FROM handovers ORDER BY expires_at, rowid;
INSERT INTO conversation_keys (org, principal, key, conversation)
  SELECT org, principal, 'call:' || call_id, 'call:' || handover FROM handover_calls;
DROP TABLE handover_calls;
DROP TABLE handovers;

ALTER TABLE org_usage RENAME COLUMN handovers TO conversations;

CREATE TRIGGER conversations_usage AFTER DELETE ON conversations BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body), conversations = conversations - 1 WHERE org = old.org;
END;
CREATE TRIGGER conversations_replaced AFTER UPDATE OF body ON conversations BEGIN
  UPDATE org_usage SET bytes = bytes - octet_length(old.body) WHERE org = old.org;
END;
CREATE TRIGGER conversation_keys_usage AFTER DELETE ON conversation_keys BEGIN
  UPDATE org_usage SET bytes = bytes - 300 WHERE org = old.org;
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- Only what was handed over is kept: older releases store nothing else.
DELETE FROM conversations WHERE key NOT LIKE 'call:%';
DELETE FROM conversation_keys WHERE key NOT LIKE 'call:%';

CREATE TABLE handovers (
  org        TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  id         TEXT    NOT NULL,
  run_id     TEXT    NOT NULL,
  body       TEXT    NOT NULL, -- JSON
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, principal, id)
) STRICT;
CREATE INDEX handovers_expire ON handovers (expires_at);

CREATE TABLE handover_calls (
  org       TEXT NOT NULL,
  principal TEXT NOT NULL,
  call_id   TEXT NOT NULL,
  handover  TEXT NOT NULL,
  PRIMARY KEY (org, principal, call_id),
  FOREIGN KEY (org, principal, handover) REFERENCES handovers (org, principal, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX handover_calls_handover ON handover_calls (org, principal, handover);

INSERT INTO handovers (org, principal, id, run_id, body, expires_at)
  SELECT org, principal, substr(key, 6), body ->> '$.run_id', body, expires_at FROM conversations ORDER BY saved_at, rowid;
INSERT INTO handover_calls (org, principal, call_id, handover)
  SELECT org, principal, substr(key, 6), substr(conversation, 6) FROM conversation_keys;
DROP TABLE conversation_keys;
DROP TABLE conversations;

ALTER TABLE org_usage RENAME COLUMN conversations TO handovers;

CREATE TRIGGER handovers_usage AFTER DELETE ON handovers BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body), handovers = handovers - 1 WHERE org = old.org;
END;
CREATE TRIGGER handover_calls_usage AFTER DELETE ON handover_calls BEGIN
  UPDATE org_usage SET bytes = bytes - 300 WHERE org = old.org;
END;
CREATE INDEX handovers_oldest ON handovers (org, expires_at);
-- +goose StatementEnd
