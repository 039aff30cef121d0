-- The settings of an org for its agents become a member of its settings, whose text is not read: the server refuses some escapes
-- that it may have.

-- +goose Up
-- +goose StatementBegin
LOCK TABLE orgs, agent_settings IN ACCESS EXCLUSIVE MODE; -- dropping the one locks the other, too

UPDATE orgs SET runtime = left(runtime, -1) || ',"agents":' || moved.agents || '}'
FROM (SELECT org, json_strip_nulls(json_build_object(
    'default_model', max(value) FILTER (WHERE key = 'AGENT_DEFAULT_MODEL'),
    'max_steps', max(substring(value FROM '^\d{1,9}$')::integer) FILTER (WHERE key = 'AGENT_MAX_STEPS'),
    'timeout_seconds', max(substring(value FROM '^\d{1,9}$')::integer) FILTER (WHERE key = 'AGENT_TIMEOUT_SECONDS'),
    'compaction_model', max(value) FILTER (WHERE key = 'COMPACTION_MODEL'),
    'vision_model', max(value) FILTER (WHERE key = 'VISION_MODEL'),
    'set_at', json_object_agg(key, updated_at))) AS agents
  FROM agent_settings GROUP BY org) AS moved
WHERE moved.org = orgs.id;
DROP TABLE agent_settings;

UPDATE schema_oldest SET oldest = 104;
-- +goose StatementEnd
