-- +goose Up
-- +goose StatementBegin
-- The id of the conversation with parts that the run adds to; '' = none.
ALTER TABLE runs ADD COLUMN conversation TEXT NOT NULL DEFAULT '';
CREATE INDEX runs_adding ON runs (org, conversation) WHERE conversation <> '' AND status <> 'done';

-- The parts that several conversations have, since one was forked: a row for each of these.
CREATE TABLE shared_parts (
  org          TEXT NOT NULL,
  part         TEXT NOT NULL, -- a key of conversations
  conversation TEXT NOT NULL, -- a key of conversations
  PRIMARY KEY (org, part, conversation)
) STRICT, WITHOUT ROWID;
CREATE INDEX shared_parts_of ON shared_parts (org, conversation);

-- A shared part is deleted with the last conversation that has it.
CREATE TRIGGER conversations_shared AFTER DELETE ON conversations WHEN old.principal = '' AND substr(old.key, 1, 8) = 'session:' BEGIN
  DELETE FROM shared_parts WHERE org = old.org AND conversation = old.key;
END;
CREATE TRIGGER shared_parts_last AFTER DELETE ON shared_parts
WHEN NOT EXISTS (SELECT 1 FROM shared_parts WHERE org = old.org AND part = old.part) BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = old.part;
END;

DROP TRIGGER sessions_conversation;
CREATE TRIGGER sessions_conversation AFTER DELETE ON sessions BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = 'session:' || old.id;
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key = 'session:items_' || substr(old.id, 6)
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = conversations.org AND s.part = conversations.key);
END;
DROP TRIGGER session_turns_conversation;
CREATE TRIGGER session_turns_conversation AFTER DELETE ON session_turns BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND (key = 'response:resp_' || substr(old.run_id, 5)
    OR key > 'response:resp_' || substr(old.run_id, 5) || 'p' AND key < 'response:resp_' || substr(old.run_id, 5) || 'q')
    AND NOT EXISTS (SELECT 1 FROM shared_parts s WHERE s.org = conversations.org AND s.part = conversations.key);
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TRIGGER session_turns_conversation;
CREATE TRIGGER session_turns_conversation AFTER DELETE ON session_turns BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND (key = 'response:resp_' || substr(old.run_id, 5)
    OR key > 'response:resp_' || substr(old.run_id, 5) || 'p' AND key < 'response:resp_' || substr(old.run_id, 5) || 'q');
END;
DROP TRIGGER sessions_conversation;
CREATE TRIGGER sessions_conversation AFTER DELETE ON sessions BEGIN
  DELETE FROM conversations WHERE org = old.org AND principal = '' AND key IN ('session:' || old.id, 'session:items_' || substr(old.id, 6));
END;
DROP TRIGGER shared_parts_last;
DROP TRIGGER conversations_shared;
DROP TABLE shared_parts;
DROP INDEX runs_adding;
ALTER TABLE runs DROP COLUMN conversation;
-- +goose StatementEnd
