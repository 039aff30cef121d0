-- +goose Up
-- +goose StatementBegin
-- Handovers have a cap of their own: they are counted apart from the other conversations.
ALTER TABLE org_usage ADD COLUMN handovers INTEGER NOT NULL DEFAULT 0; -- of conversations
UPDATE org_usage SET handovers = (SELECT count(*) FROM conversations c WHERE c.org = org_usage.org AND substr(c.key, 1, 5) = 'call:');

DROP INDEX conversations_oldest;
CREATE INDEX conversations_oldest ON conversations (org, substr(key, 1, 5) = 'call:', saved_at);

DROP TRIGGER conversations_usage;
CREATE TRIGGER conversations_usage AFTER DELETE ON conversations BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body), conversations = conversations - 1,
    handovers = handovers - (substr(old.key, 1, 5) = 'call:') WHERE org = old.org;
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TRIGGER conversations_usage;
CREATE TRIGGER conversations_usage AFTER DELETE ON conversations BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body), conversations = conversations - 1 WHERE org = old.org;
END;

DROP INDEX conversations_oldest;
CREATE INDEX conversations_oldest ON conversations (org, saved_at);
ALTER TABLE org_usage DROP COLUMN handovers;
-- +goose StatementEnd
