-- +goose Up
-- +goose StatementBegin
-- What the rows of the audit log add up to. A sum is kept for each combination of the columns of its
-- key. It is written in the transaction of its rows and outlives them.
CREATE TABLE usage_sums (
  org       TEXT    NOT NULL,
  day       INTEGER NOT NULL, -- since 1970-01-01, in UTC
  end_user  TEXT    NOT NULL, -- empty = nobody, or several; third, so that it is known whether an end user has a sum
  rest      INTEGER NOT NULL, -- 1 = end_user is several, 2 = model and target are several, 3 = both; 0 = neither
  principal TEXT    NOT NULL,
  model     TEXT    NOT NULL, -- the client's name
  provider  TEXT    NOT NULL,
  target    TEXT    NOT NULL, -- the provider's name of the model
  surface   TEXT    NOT NULL,
  agent     TEXT    NOT NULL,
  first_n   INTEGER NOT NULL, -- the rows in it have numbers from first_n to last_n
  last_n    INTEGER NOT NULL,
  requests           INTEGER NOT NULL DEFAULT 0,
  tool_calls         INTEGER NOT NULL DEFAULT 0,
  gpu_ms             INTEGER NOT NULL DEFAULT 0,
  input_tokens       INTEGER NOT NULL DEFAULT 0,
  cached_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens      INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
  nano_usd           INTEGER NOT NULL DEFAULT 0, -- with tool_nano_usd
  tool_nano_usd      INTEGER NOT NULL DEFAULT 0,
  estimated_input    INTEGER NOT NULL DEFAULT 0, -- the parts of the sums that the gateway has estimated
  estimated_output   INTEGER NOT NULL DEFAULT 0,
  estimated_nano_usd INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (org, day, end_user, rest, principal, model, provider, target, surface, agent)
) STRICT, WITHOUT ROWID;

-- How many names the sums of a day have. Further ones are added up together.
CREATE TABLE usage_days (
  org       TEXT    NOT NULL,
  day       INTEGER NOT NULL,
  end_users INTEGER NOT NULL,
  models    INTEGER NOT NULL,
  PRIMARY KEY (org, day)
) STRICT, WITHOUT ROWID;

-- The models of usage_days. An end user is found in the primary key of usage_sums.
CREATE TABLE usage_models (
  org   TEXT    NOT NULL,
  day   INTEGER NOT NULL,
  model TEXT    NOT NULL,
  PRIMARY KEY (org, day, model)
) STRICT, WITHOUT ROWID;

-- The rows that are stored are added one by one: sorting all of them would need as much memory as they
-- have. Which end users and models have sums of their own is decided afterwards, in the order of names.
CREATE TEMP TABLE summed (
  org, day, end_user, principal, model, provider, target, surface, agent, first_n, last_n,
  requests, tool_calls, gpu_ms, input_tokens, cached_tokens, output_tokens, reasoning_tokens, nano_usd, tool_nano_usd,
  PRIMARY KEY (org, day, end_user, principal, model, provider, target, surface, agent)
) WITHOUT ROWID;

INSERT INTO summed
SELECT a.org, a.at / 86400000, coalesce(a.body ->> '$.end_user', ''), a.principal, coalesce(a.body ->> '$.model', ''),
  coalesce(a.body ->> '$.provider', ''), coalesce(a.body ->> '$.target', ''), coalesce(a.body ->> '$.via', a.body ->> '$.surface', ''), coalesce(s.agent, ''), a.n, a.n,
  1, coalesce(a.body ->> '$.tool_calls', 0), coalesce(a.body ->> '$.gpu_ms', 0), coalesce(a.body ->> '$.input_tokens', 0), coalesce(a.body ->> '$.cached_tokens', 0),
  coalesce(a.body ->> '$.output_tokens', 0), coalesce(a.body ->> '$.reasoning_tokens', 0), coalesce(a.body ->> '$.cost_nano_usd', 0), 0
FROM audit_log a LEFT JOIN session_turns t ON a.run_id <> '' AND t.org = a.org AND t.run_id = a.run_id LEFT JOIN sessions s ON s.org = t.org AND s.id = t.session
WHERE a.kind = 'audit_log.request' AND iif(json_valid(a.body), a.body ->> '$.attempts' > 0, 0)
ON CONFLICT DO UPDATE SET last_n = max(last_n, excluded.last_n), first_n = min(first_n, excluded.first_n),
  requests = requests + 1, tool_calls = tool_calls + excluded.tool_calls, gpu_ms = gpu_ms + excluded.gpu_ms,
  input_tokens = input_tokens + excluded.input_tokens, cached_tokens = cached_tokens + excluded.cached_tokens,
  output_tokens = output_tokens + excluded.output_tokens, reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens, nano_usd = nano_usd + excluded.nano_usd;

INSERT INTO summed
SELECT a.org, a.at / 86400000, coalesce(a.body ->> '$.end_user', ''), a.principal, coalesce(a.body ->> '$.model', ''),
  '', '', '', coalesce(s.agent, ''), a.n, a.n, 0, 0, 0, 0, 0, 0, 0, a.body ->> '$.cost_nano_usd', a.body ->> '$.cost_nano_usd'
FROM audit_log a LEFT JOIN session_turns t ON a.run_id <> '' AND t.org = a.org AND t.run_id = a.run_id LEFT JOIN sessions s ON s.org = t.org AND s.id = t.session
WHERE a.kind IN ('audit_log.agent.tool_call', 'audit_log.mcp.tool_call') AND iif(json_valid(a.body), a.body ->> '$.cost_nano_usd' > 0, 0)
ON CONFLICT DO UPDATE SET last_n = max(last_n, excluded.last_n), first_n = min(first_n, excluded.first_n),
  nano_usd = nano_usd + excluded.nano_usd, tool_nano_usd = tool_nano_usd + excluded.tool_nano_usd;

INSERT INTO usage_sums (org, day, end_user, rest, principal, model, provider, target, surface, agent, first_n, last_n,
  requests, tool_calls, gpu_ms, input_tokens, cached_tokens, output_tokens, reasoning_tokens, nano_usd, tool_nano_usd)
SELECT org, day, iif(user_rank > 10001, '', end_user), (user_rank > 10001) + 2 * (model_rank > 1001), principal, iif(model_rank > 1001, '', model), provider,
  iif(model_rank > 1001, '', target), surface, agent, min(first_n), max(last_n),
  sum(requests), sum(tool_calls), sum(gpu_ms), sum(input_tokens), sum(cached_tokens), sum(output_tokens), sum(reasoning_tokens), sum(nano_usd), sum(tool_nano_usd)
FROM (SELECT *, -- the empty name has the first rank
    dense_rank() OVER (PARTITION BY org, day ORDER BY end_user) + (min(end_user) OVER (PARTITION BY org, day) <> '') AS user_rank,
    dense_rank() OVER (PARTITION BY org, day ORDER BY model) + (min(model) OVER (PARTITION BY org, day) <> '') AS model_rank FROM summed)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
DROP TABLE summed;

INSERT INTO usage_models SELECT DISTINCT org, day, model FROM usage_sums WHERE model <> '';
INSERT INTO usage_days
  SELECT org, day, count(DISTINCT nullif(end_user, '')), count(DISTINCT nullif(model, '')) FROM usage_sums GROUP BY org, day;

-- The kinds that are rare. A statement uses it only if it names the index and repeats the condition.
CREATE INDEX audit_log_rare ON audit_log (org, kind, n)
  WHERE kind NOT IN ('audit_log.request', 'audit_log.agent.tool_call', 'audit_log.mcp.tool_call', 'audit_log.resource.call');
CREATE INDEX api_keys_created ON api_keys (org, created_at, id);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX api_keys_created;
DROP INDEX audit_log_rare;
DROP TABLE usage_models;
DROP TABLE usage_days;
DROP TABLE usage_sums;
-- +goose StatementEnd
