-- A chat session becomes a conversation with parts, of which the first one has all items that it has. A run of it that has
-- not ended adds to it. What is stored is not read as JSON, nor as text: the server refuses some escapes, and bytes that are
-- not UTF-8, which items may have.

-- +goose Up
-- +goose StatementBegin
LOCK TABLE conversations, org_usage, runs IN SHARE ROW EXCLUSIVE MODE;

CREATE TEMP TABLE moved ON COMMIT DROP AS
  SELECT org, principal, key, 'chat_' || principal || '/' || substr(key, 9) AS id,
    'items_' || replace(gen_random_uuid()::text, '-', '') AS part, version, body, saved_at, expires_at,
    coalesce(substring(encode(body, 'escape') FROM '^{"v":1,"run_id":"([^"]*)"'), '') AS run_id,
    decode(coalesce(substring(encode(body, 'escape') FROM '.*,"echo":({"created_at":.*})}\s*$'), '{}'), 'escape') AS echo
  FROM conversations WHERE principal <> '' AND NOT (principal >= 'library:' AND principal < 'library;')
    AND key >= 'session:' AND key < 'session;' AND substr(body, 1, 7) = '{"v":1,';

INSERT INTO conversations (org, principal, key, version, body, saved_at, expires_at)
  SELECT org, '', 'session:' || part, 1, convert_to('{"v":1,"owner":' || to_json(id) || ',', 'UTF8') || substr(body, 8), saved_at,
    saved_at + 200 * 365 * 86400000::bigint -- journal.Kept
  FROM moved
  UNION ALL
  SELECT org, '', 'session:' || id, version, convert_to('{"v":1,"run_id":' || to_json(run_id) || ',"parts":' || json_build_array(part)
    || ',"echo":', 'UTF8') || echo || convert_to('}', 'UTF8'), saved_at, expires_at
  FROM moved;
INSERT INTO conversation_keys (org, principal, key, conversation)
  SELECT org, '', 'session:' || part, 'session:' || part FROM moved
  UNION ALL
  SELECT org, '', 'session:' || id, 'session:' || id FROM moved;
INSERT INTO shared_parts (org, part, conversation) SELECT org, 'session:' || part, 'session:' || id FROM moved;

UPDATE org_usage SET conversations = org_usage.conversations + added.n, bytes = org_usage.bytes + added.bytes
FROM (SELECT c.org, count(*) AS n, sum(550 + octet_length(c.body)) AS bytes FROM conversations c JOIN moved m ON m.org = c.org
  AND c.principal = '' AND c.key IN ('session:' || m.part, 'session:' || m.id) GROUP BY 1) AS added
WHERE added.org = org_usage.org;

UPDATE runs SET conversation = moved.id FROM moved
WHERE runs.org = moved.org AND runs.run_id = moved.run_id AND runs.status <> 'done';
DELETE FROM conversations c USING moved m WHERE c.org = m.org AND c.principal = m.principal AND c.key = m.key;

UPDATE schema_oldest SET oldest = 103;
-- +goose StatementEnd
