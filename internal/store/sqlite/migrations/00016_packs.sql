-- +goose Up
-- +goose StatementBegin
-- A row of run_facts with the kind 'pack' holds several facts of a run, the last of which has
-- its seq, and rows that were stored with them. The tables do not change. Older releases do
-- not know this kind, and must not open the file. Facts and rows that are stored already stay as
-- they are.
SELECT 1;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE TABLE packs (org TEXT NOT NULL, run_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO packs (org, run_id, seq, body) SELECT org, run_id, seq, body FROM run_facts WHERE kind = 'pack';
DELETE FROM run_facts WHERE kind = 'pack';

INSERT INTO run_facts (org, run_id, seq, epoch, kind, call_key, attempt, at, v, body)
  SELECT p.org, p.run_id, p.seq - json_array_length(p.body, '$.facts') + 1 + f.key, f.value ->> 'epoch', f.value ->> 'kind', f.value ->> 'call',
    coalesce(f.value ->> 'attempt', 0), f.value ->> 'at', f.value ->> 'v', f.value -> 'body'
  FROM packs p, json_each(p.body, '$.facts') f;
INSERT INTO run_rows (org, run_id, ref, body)
  SELECT p.org, p.run_id, r.value ->> 'ref', r.value -> 'body' FROM packs p, json_each(p.body, '$.rows') r;
UPDATE org_usage SET bytes = bytes
  + (SELECT coalesce(sum(250 + octet_length(f.value -> 'body')), 0) FROM packs p, json_each(p.body, '$.facts') f WHERE p.org = org_usage.org)
  + (SELECT coalesce(sum(160 + octet_length(r.value -> 'body')), 0) FROM packs p, json_each(p.body, '$.rows') r WHERE p.org = org_usage.org);
DROP TABLE packs;
-- +goose StatementEnd
