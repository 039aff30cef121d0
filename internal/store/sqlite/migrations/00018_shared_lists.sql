-- Lists whose begin is that of other lists: what runs begin with, and of what conversations consist. See package
-- sqlite, shared.go.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE shared_lists (
  org      TEXT    NOT NULL,
  digest   TEXT    NOT NULL, -- of all its elements, with those in front
  before   TEXT    NOT NULL, -- the digest of the list whose elements are in front; empty = none are
  elements INTEGER NOT NULL, -- how many, with those in front
  bytes    INTEGER NOT NULL, -- of all of them
  uses     INTEGER NOT NULL, -- rows, conversations and lists that name it; without any it is deleted
  body     TEXT    NOT NULL, -- the elements behind those in front, as JSON, with a comma between two
  PRIMARY KEY (org, digest)
) STRICT;
CREATE INDEX shared_lists_unused ON shared_lists (uses) WHERE uses = 0;

ALTER TABLE run_rows ADD COLUMN rest TEXT; -- the list of what follows in the list of body; NULL = body has all
ALTER TABLE conversations ADD COLUMN parts TEXT; -- the list of the parts that body does not name; NULL = it names all

CREATE TRIGGER run_rows_rest AFTER DELETE ON run_rows WHEN old.rest IS NOT NULL BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.rest;
END;
CREATE TRIGGER conversations_parts AFTER DELETE ON conversations WHEN old.parts IS NOT NULL BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.parts;
END;
CREATE TRIGGER conversations_parts_replaced AFTER UPDATE OF parts ON conversations WHEN old.parts IS NOT NULL BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.parts;
END;
CREATE TRIGGER shared_lists_before AFTER DELETE ON shared_lists BEGIN
  UPDATE shared_lists SET uses = uses - 1 WHERE org = old.org AND digest = old.before;
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body) WHERE org = old.org;
END;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TRIGGER shared_lists_before;
DROP TRIGGER conversations_parts_replaced;
DROP TRIGGER conversations_parts;
DROP TRIGGER run_rows_rest;
ALTER TABLE conversations DROP COLUMN parts;
ALTER TABLE run_rows DROP COLUMN rest;
DROP TABLE shared_lists;
-- +goose StatementEnd
