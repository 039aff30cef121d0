-- +goose Up
-- +goose StatementBegin
-- How much of an org's is stored, so that nobody has to count: of runs with
-- their facts and rows, and of handovers. The gateway adds what it inserts; the
-- triggers subtract what is deleted, also by a cascade. Bytes are those of a
-- body, and for each row a constant for its columns, its keys and its place in
-- the indexes, which are those of usage.go.
CREATE TABLE org_usage (
  org       TEXT    NOT NULL PRIMARY KEY,
  bytes     INTEGER NOT NULL,
  handovers INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO org_usage (org, bytes, handovers)
  SELECT org, sum(bytes), sum(handovers) FROM (
    SELECT org, 500 AS bytes, 0 AS handovers FROM runs
    UNION ALL SELECT org, 250 + octet_length(body), 0 FROM run_facts
    UNION ALL SELECT org, 160 + octet_length(body), 0 FROM run_rows
    UNION ALL SELECT org, 250 + octet_length(body), 1 FROM handovers
    UNION ALL SELECT org, 300, 0 FROM handover_calls
  ) GROUP BY org;

CREATE TRIGGER runs_usage AFTER DELETE ON runs BEGIN
  UPDATE org_usage SET bytes = bytes - 500 WHERE org = old.org;
END;
CREATE TRIGGER run_facts_usage AFTER DELETE ON run_facts BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body) WHERE org = old.org;
END;
CREATE TRIGGER run_rows_usage AFTER DELETE ON run_rows BEGIN
  UPDATE org_usage SET bytes = bytes - 160 - octet_length(old.body) WHERE org = old.org;
END;
CREATE TRIGGER handovers_usage AFTER DELETE ON handovers BEGIN
  UPDATE org_usage SET bytes = bytes - 250 - octet_length(old.body), handovers = handovers - 1 WHERE org = old.org;
END;
CREATE TRIGGER handover_calls_usage AFTER DELETE ON handover_calls BEGIN
  UPDATE org_usage SET bytes = bytes - 300 WHERE org = old.org;
END;

-- The oldest of an org's handovers, and its keys by whether they work.
CREATE INDEX handovers_oldest ON handovers (org, expires_at);
CREATE INDEX api_keys_working ON api_keys (org) WHERE revoked_at = 0;
CREATE INDEX api_keys_revoked ON api_keys (org, revoked_at) WHERE revoked_at > 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX api_keys_revoked;
DROP INDEX api_keys_working;
DROP INDEX handovers_oldest;
DROP TRIGGER handover_calls_usage;
DROP TRIGGER handovers_usage;
DROP TRIGGER run_rows_usage;
DROP TRIGGER run_facts_usage;
DROP TRIGGER runs_usage;
DROP TABLE org_usage;
-- +goose StatementEnd
