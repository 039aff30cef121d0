-- The settings of an org for its agents become a member of its settings.

-- +goose Up
-- +goose StatementBegin
UPDATE orgs SET runtime = json_set(runtime, '$.agents', json(moved.agents))
FROM (SELECT org, json_patch('{}', json_object( -- without what is NULL
    'default_model', max(value) FILTER (WHERE key = 'AGENT_DEFAULT_MODEL'),
    'max_steps', CAST(max(value) FILTER (WHERE key = 'AGENT_MAX_STEPS') AS INTEGER),
    'timeout_seconds', CAST(max(value) FILTER (WHERE key = 'AGENT_TIMEOUT_SECONDS') AS INTEGER),
    'compaction_model', max(value) FILTER (WHERE key = 'COMPACTION_MODEL'),
    'vision_model', max(value) FILTER (WHERE key = 'VISION_MODEL'),
    'set_at', json_group_object(key, updated_at))) AS agents
  FROM agent_settings GROUP BY org) AS moved
WHERE moved.org = orgs.id;
DROP TABLE agent_settings;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE TABLE agent_settings (
  org        TEXT    NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
  key        TEXT    NOT NULL,
  value      TEXT    NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, key)
) STRICT;
UPDATE orgs SET runtime = json_remove(runtime, '$.agents');
-- +goose StatementEnd
