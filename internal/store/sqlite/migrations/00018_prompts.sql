-- What the input of a run begins with, stored once: most of it is the input of the turn before, and its
-- answer. See package sqlite, prompt.go.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE prompts (
  org    TEXT    NOT NULL,
  digest TEXT    NOT NULL, -- of all its items, with those in front
  before TEXT    NOT NULL, -- the digest of the prompt whose items are in front; empty = none are
  items  INTEGER NOT NULL, -- how many, with those in front
  bytes  INTEGER NOT NULL, -- of all of them
  uses   INTEGER NOT NULL, -- rows of runs and prompts that name it; without any it is deleted
  body   TEXT    NOT NULL, -- JSON list of the items behind those in front
  PRIMARY KEY (org, digest)
) STRICT;
CREATE INDEX prompts_unused ON prompts (uses) WHERE uses = 0;

ALTER TABLE run_rows ADD COLUMN prompt TEXT; -- the digest of what follows the items of body; NULL = body is all

CREATE TRIGGER run_rows_prompt AFTER DELETE ON run_rows WHEN old.prompt IS NOT NULL BEGIN
  UPDATE prompts SET uses = uses - 1 WHERE org = old.org AND digest = old.prompt;
END;
CREATE TRIGGER prompts_before AFTER DELETE ON prompts BEGIN
  UPDATE prompts SET uses = uses - 1 WHERE org = old.org AND digest = old.before;
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body) WHERE org = old.org;
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TRIGGER prompts_before;
DROP TRIGGER run_rows_prompt;
ALTER TABLE run_rows DROP COLUMN prompt;
DROP TABLE prompts;
-- +goose StatementEnd
