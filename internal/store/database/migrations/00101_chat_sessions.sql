-- A chat session becomes a conversation with parts, of which the first one has all items that it has. A run of it that has
-- not ended adds to it.

-- +goose Up
-- +goose StatementBegin
CREATE TEMP TABLE moved AS
  SELECT org, principal, key, 'chat_' || principal || '/' || substr(key, 9) AS id, 'items_' || lower(hex(randomblob(16))) AS part,
    version, body, saved_at, expires_at
  FROM conversations WHERE principal <> '' AND NOT (principal >= 'library:' AND principal < 'library;')
    AND key >= 'session:' AND key < 'session;' AND substr(body, 1, 7) = '{"v":1,' AND json_valid(body);

INSERT INTO conversations (org, principal, key, version, body, saved_at, expires_at)
  SELECT org, '', 'session:' || part, 1, '{"v":1,"owner":' || json_quote(id) || ',' || substr(body, 8), saved_at,
    saved_at + 200 * 365 * 86400000 -- journal.Kept
  FROM moved
  UNION ALL
  SELECT org, '', 'session:' || id, version, json_object('v', 1, 'run_id', body ->> '$.run_id', 'parts', json_array(part),
    'echo', json(body -> '$.echo')), saved_at, expires_at
  FROM moved;
INSERT INTO conversation_keys (org, principal, key, conversation)
  SELECT org, '', 'session:' || part, 'session:' || part FROM moved
  UNION ALL
  SELECT org, '', 'session:' || id, 'session:' || id FROM moved;
INSERT INTO shared_parts (org, part, conversation) SELECT org, 'session:' || part, 'session:' || id FROM moved;

UPDATE org_usage SET conversations = org_usage.conversations + added.n, bytes = org_usage.bytes + added.bytes
FROM (SELECT c.org AS org, count(*) AS n, sum(550 + octet_length(c.body)) AS bytes FROM conversations c JOIN moved m ON m.org = c.org
  AND c.principal = '' AND c.key IN ('session:' || m.part, 'session:' || m.id) GROUP BY 1) AS added
WHERE added.org = org_usage.org;

UPDATE runs SET conversation = moved.id FROM moved
WHERE runs.org = moved.org AND runs.run_id = moved.body ->> '$.run_id' AND runs.status <> 'done';
DELETE FROM conversations WHERE (org, principal, key) IN (SELECT org, principal, key FROM moved);
DROP TABLE moved;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DELETE FROM conversations WHERE principal = '' AND key >= 'session:chat_' AND key < 'session:chat`';
-- +goose StatementEnd
