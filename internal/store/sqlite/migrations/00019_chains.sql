-- The sessions of programs are conversations: a head, and a chain of segments that each name the one before. Both have
-- a principal that begins with "library:".

-- +goose Up
-- +goose StatementBegin
DROP TABLE agent_turns;
DROP TABLE agent_conversations;

ALTER TABLE conversations ADD COLUMN previous TEXT NOT NULL DEFAULT ''; -- id of the segment that it follows; '' = none
UPDATE conversations SET previous = coalesce(CASE WHEN json_valid(body) THEN body ->> '$.previous' END, '');
CREATE INDEX conversations_previous ON conversations (org, principal, previous)
  WHERE principal >= 'library:' AND principal < 'library;' AND previous <> '';
CREATE INDEX conversations_heads ON conversations (org, principal, saved_at, key)
  WHERE principal >= 'library:' AND principal < 'library;' AND key >= 'session:' AND key < 'session;';

-- The segments that a head has left or leaves alone are deleted, up to one that another head or segment names.
CREATE TRIGGER conversations_head_deleted AFTER DELETE ON conversations
WHEN old.principal >= 'library:' AND old.principal < 'library;' AND old.previous <> '' AND substr(old.key, 1, 8) = 'session:' BEGIN
  DELETE FROM conversations WHERE rowid IN (WITH RECURSIVE alone (id, previous, named) AS (
      SELECT NULL, old.previous, 0
    UNION ALL
      SELECT c.rowid, c.previous, 1 FROM alone CROSS JOIN conversations c
        ON c.org = old.org AND c.principal = old.principal AND c.key = 'response:' || alone.previous
      WHERE alone.named = (SELECT count(*) FROM (SELECT 1 FROM conversations n INDEXED BY conversations_previous
        WHERE n.org = old.org AND n.principal = old.principal AND n.previous = alone.previous
        AND n.principal >= 'library:' AND n.principal < 'library;' AND n.previous <> '' LIMIT 2)))
    SELECT id FROM alone);
END;
CREATE TRIGGER conversations_head_moved AFTER UPDATE OF previous ON conversations
WHEN old.principal >= 'library:' AND old.principal < 'library;' AND old.previous <> '' AND substr(old.key, 1, 8) = 'session:'
  AND new.previous <> old.previous BEGIN
  DELETE FROM conversations WHERE rowid IN (WITH RECURSIVE alone (id, previous, named) AS (
      SELECT NULL, old.previous, 0
    UNION ALL
      SELECT c.rowid, c.previous, 1 FROM alone CROSS JOIN conversations c
        ON c.org = old.org AND c.principal = old.principal AND c.key = 'response:' || alone.previous
      WHERE alone.named = (SELECT count(*) FROM (SELECT 1 FROM conversations n INDEXED BY conversations_previous
        WHERE n.org = old.org AND n.principal = old.principal AND n.previous = alone.previous
        AND n.principal >= 'library:' AND n.principal < 'library;' AND n.previous <> '' LIMIT 2)))
    SELECT id FROM alone);
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TRIGGER conversations_head_moved;
DROP TRIGGER conversations_head_deleted;
DROP INDEX conversations_heads;
DROP INDEX conversations_previous;
ALTER TABLE conversations DROP COLUMN previous;
CREATE TABLE agent_conversations (id TEXT); -- which an earlier migration drops
CREATE TABLE agent_turns (id TEXT);
-- +goose StatementEnd
