package config

import (
	"math"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/tool"
)

// keys is the table of the whole file.
func (c *Config) keys() []key {
	return []key{
		{name: "listen", value: text(&c.Listen, "127.0.0.1:8080", "host:port", checkListen), env: "TURNPIKE_LISTEN",
			doc: "Address to listen on. Port 0 selects a free port."},
		{name: "public_hosts", value: texts(&c.PublicHosts, nil, "host name", checkHost), env: "TURNPIKE_PUBLIC_HOSTS",
			doc: "Host names of the gateway, without ports. Requests for other host names are refused. Empty: on a loopback address only IP addresses and localhost are accepted, otherwise every name. IP addresses and localhost are always accepted."},
		{name: "public_url", live: true, value: text(&c.PublicURL, "", "http or https URL", checkPublicURL), env: "TURNPIKE_PUBLIC_URL",
			doc: "Where clients reach the gateway, such as https://gateway.example.com. URLs that it returns, such as signed URLs of files, begin with it. Empty: only requests to a loopback address get such URLs."},
		{name: "allowed_origins", value: texts(&c.AllowedOrigins, nil, "origin such as https://app.example.com", checkOrigin), env: "TURNPIKE_ALLOWED_ORIGINS",
			doc: "Origins whose pages may send requests that change something, in addition to the gateway's own. The gateway does not answer CORS requests."},
		{name: "max_connections", value: integer(&c.MaxConnections, 20_000, 1, 1_000_000), env: "TURNPIKE_MAX_CONNECTIONS",
			doc: "Maximum concurrent connections, and never more than half of the process's file descriptor limit. Further connections get 503."},
		{name: "max_requests", value: integer(&c.MaxRequests, 20_000, 1, 1_000_000), env: "TURNPIKE_MAX_REQUESTS",
			doc: "Maximum concurrent model requests. One org may use at most twice the number that is free, so a single org gets at most two thirds. Further requests get 503."},
		{name: "max_retained_mib", value: integer(&c.MaxRetainedMiB, 0, 0, 1<<20), env: "TURNPIKE_MAX_RETAINED_MIB",
			doc: "Maximum memory in MiB that all requests and runs together may hold: bodies, turns, results, journals that are read back. One org may use at most twice the amount that is free, so a single org gets at most two thirds. An org over its share gets 429; when the total is used up, all get 503. 0: half of what the overload check allows (from GOMEMLIMIT or the container's limit), or 1024 without such a limit."},
		{name: "max_retained_run_mib", value: integer(&c.MaxRetainedRunMiB, 64, 16, 1024), env: "TURNPIKE_MAX_RETAINED_RUN_MIB",
			doc: "Maximum memory in MiB that one run may hold."},
		{name: "max_relay_body_mib", value: integer(&c.MaxRelayBodyMiB, 32, 1, 1024), env: "TURNPIKE_MAX_RELAY_BODY_MIB",
			doc: "Maximum size in MiB of a request to a relayed endpoint, such as /v1/audio/transcriptions. Larger ones get 413. A body of more than 1 MiB is kept in a file in data while it is served."},
		{name: "max_spool_mib", value: integer(&c.MaxSpoolMiB, 1024, 1, 1<<20), env: "TURNPIKE_MAX_SPOOL_MIB",
			doc: "Maximum size in MiB of all these files together. One org may use at most twice the amount that is free, so a single org gets at most two thirds. An org over its share gets 429; when the total is used up, all get 503."},
		{name: "max_followers_per_run", live: true, value: integer(&c.MaxFollowersPerRun, 16, 1, 1000), env: "TURNPIKE_MAX_FOLLOWERS_PER_RUN",
			doc: "Maximum concurrent requests that follow one run, beside the one that started it. An org may have 1,000 in total. Further requests get 429."},
		{name: "data", value: pathKey{text(&c.Data, "./turnpike-data", "directory", checkPath)}, env: "TURNPIKE_DATA",
			doc: "Directory of the SQLite file and of uploaded files. With database only of files that one machine needs while it works."},
		{name: "database", value: databaseKey(&c.Database), env: "TURNPIKE_DATABASE_URL",
			doc: "PostgreSQL database that one or several gateways use: postgres://ROLE@HOST:PORT/DATABASE, with the password, or a reference to " +
				"such a URL. It needs master_key. Empty: SQLite in data."},
		{name: "postgres", value: object{c.Postgres.keys()},
			doc: "Only with database: how it is used."},
		{name: "replica", presence: true, value: object{c.replica.keys()},
			doc: "Only with database: written, also as {}, several gateways may use the database at the same time. Buckets of kind disk are " +
				"refused then."},
		{name: "redis", value: credentialKey(&c.Redis), unbuilt: unbuilt{nil, `leave it out or set it to ""`}, env: "TURNPIKE_REDIS_URL",
			doc: "Redis for shared limits, cache and notifications. Empty: none."},
		{name: "clickhouse", value: credentialKey(&c.ClickHouse), unbuilt: unbuilt{nil, `leave it out or set it to ""`}, env: "TURNPIKE_CLICKHOUSE_URL",
			doc: "ClickHouse for analytics. Empty: none."},
		{name: "max_rounds_cap", live: true, value: unsetZero(integer(&c.MaxRoundsCap, 0, 1, budget.MaxRounds)).or("50; 256 rounds of tools where a switch runs the agent loop"), env: "TURNPIKE_MAX_ROUNDS_CAP",
			doc: "Maximum rounds of any run. It caps max_rounds and max_tool_rounds of every org, and max_tool_rounds of requests."},
		{name: "org_caps", live: true, value: object{capKeys(&c.OrgCaps)},
			doc: "Maximum that one org may store. Objects that this file declares do not count."},
		{name: "operator_key", value: credentialKey(&c.OperatorKey), env: "TURNPIKE_OPERATOR_KEY",
			doc: "Key of the operator, who creates and deletes orgs over /api/orgs. Empty: /api/orgs is disabled."},
		{name: "master_key", value: credentialKey(&c.MasterKey), env: "TURNPIKE_MASTER_KEY",
			doc: "Encrypts the secrets of orgs: 32 random bytes in base64 or hexadecimal, for example from openssl rand -base64 32. Empty: the " +
				"file master.key in data, which the gateway creates if needed and no backup contains. With database it is required, and the " +
				"same for all replicas."},
		{name: "master_key_previous", value: credentialKey(&c.MasterKeyPrevious), env: "TURNPIKE_MASTER_KEY_PREVIOUS",
			doc: "The previous master_key. Set it for the first start after you change master_key."},
		{name: "cache_pepper", value: credentialKey(&c.CachePepper), env: "TURNPIKE_AGENT_CACHE_PEPPER",
			doc: "Signs the entries of the result cache (tool_cache_ttl_seconds): a long random text. Changing it invalidates all entries. " +
				"Empty: a new random value at every start; with database one that is made once and kept there."},
		{name: "providers", live: true, value: objects[Provider]{&c.Providers, (*Provider).keys},
			doc: "Model APIs. A request goes to the first provider whose models match. name/model goes to the provider called name, unless a route or a provider lists that whole name."},
		{name: "routes", live: true, value: objects[Route]{&c.Routes, (*Route).keys},
			doc: "Model names that clients ask for, each with the targets that serve it. A model is looked up as route, then as exact name of providers, then as name/model, then by the globs of providers."},
		{name: "models", live: true, value: objects[Model]{&c.Models, (*Model).keys},
			doc: "Context windows of models. They come before those that the program knows. Of several entries that match a model the first one counts."},
		{name: "compaction", live: true, value: object{c.Compaction.keys()},
			doc: "How prompts that are too long are shortened, in orgs, for keys and in requests that ask for it: see context.md."},
		{name: "tool_dispatch_url", live: true, value: address(&c.ToolDispatch.URL, checkURL), env: "TURNPIKE_TOOL_DISPATCH_URL",
			doc: "URL that executes the tools which requests define, in place of the clients, for all orgs. Empty: clients execute their tools. See http-tools.md."},
		{name: "tool_dispatch_secret", live: true, value: credentialKey(&c.ToolDispatch.Secret), env: "TURNPIKE_TOOL_DISPATCH_SECRET",
			doc: "Signs the requests to tool_dispatch_url like those of webhooks: whsec_ followed by the base64 of 24 to 64 random bytes. Empty: they are not signed."},
		{name: "tool_dispatch_timeout", live: true, value: duration(&c.ToolDispatch.Timeout, 30*time.Second, time.Millisecond, time.Hour), env: "TURNPIKE_TOOL_DISPATCH_TIMEOUT",
			doc: "Timeout of a call of tool_dispatch_url, with its retries."},
		{name: "tool_dispatch_tools", live: true, value: texts(&c.ToolDispatch.Tools, []string{"*"}, "tool name or glob", org.ValidPattern).notEmpty("is empty, so nothing would be sent to tool_dispatch_url; list tool names, or remove tool_dispatch_url"),
			doc: "Names and globs of the tools that tool_dispatch_url executes. Clients execute the others. * matches any characters."},
		{name: "rates", live: true, value: pathKey{text(&c.Rates, "", "file", anyText)}, env: "TURNPIKE_RATES",
			doc: "File with your own prices of models. Its rows come before the prices that the program has."},
		{name: "outbound", value: object{c.Outbound.keys()},
			doc: "Policy for addresses that orgs, users, models and remote servers can choose. It does not apply to base URLs of providers."},
		{name: "audit", value: object{c.Audit.keys()}, doc: "Settings of the audit log."},
		{name: "log", value: object{c.Log.keys()}, doc: "The log. It is written to standard error."},
		{name: "runs", value: object{c.Runs.keys()}, doc: "Settings of stored runs."},
		{name: "min_free_disk_mib", live: true, value: integer(&c.MinFreeDiskMiB, 256, 0, math.MaxInt32), env: "TURNPIKE_MIN_FREE_DISK_MIB",
			doc: "Minimum free disk space of data, in MiB. Below it new runs and relayed requests are refused; runs in progress continue. 0: no minimum."},
		{name: "telemetry", value: object{c.Telemetry.keys()},
			doc: "OpenTelemetry traces and Prometheus metrics."},
		{name: "sandbox", value: object{c.Sandbox.keys()},
			doc: "Sandboxes for code that models write. See sandbox.md."},
		{name: "mcp_servers", live: true, value: objects[org.SharedServer]{&c.MCPServers, sharedKeys},
			doc: "MCP servers that orgs share. Each org sees them as its own, cannot change them, and can switch them off. See access.md."},
		{name: "orgs", live: true, value: objects[Org]{&c.Orgs, (*Org).keys}, doc: "Isolated customers (tenants)."},
	}
}

func capKeys(o *org.Caps) []key {
	const env = "TURNPIKE_ORG_CAPS_"
	return []key{
		{name: "keys", value: integer(&o.Keys, 1000, 1, 1_000_000), env: env + "KEYS",
			doc: "Maximum active keys. The same number of revoked keys is kept; the oldest are deleted first."},
		{name: "mcp_servers", value: integer(&o.MCPServers, 100, 1, 10_000), env: env + "MCP_SERVERS", doc: "Maximum MCP servers, enabled or disabled."},
		{name: "secrets", value: integer(&o.Secrets, 1000, 1, 1_000_000), env: env + "SECRETS", doc: "Maximum secrets in the vault."},
		{name: "webhooks", value: integer(&o.Webhooks, 10, 1, 1000), env: env + "WEBHOOKS", doc: "Maximum webhooks."},
		{name: "agents", value: integer(&o.Agents, 100, 1, 10_000), env: env + "AGENTS", doc: "Maximum agents, archived ones included."},
		{name: "tools", value: integer(&o.Tools, 200, 1, 10_000), env: env + "TOOLS", doc: "Maximum custom tools of agents. Beyond it no more are created."},
		{name: "sessions", value: integer(&o.Sessions, 10_000, 1, 10_000_000), env: env + "SESSIONS", doc: "Maximum sessions of agents. Beyond it no more are created."},
		{name: "webhook_deliveries", value: integer(&o.Deliveries, 10_000, 1, 1_000_000), env: env + "WEBHOOK_DELIVERIES",
			doc: "Maximum messages for webhooks that wait for delivery, and for hooks after runs as many of their own. Beyond it the oldest of the webhook with the most, or the oldest for a hook, is given up, with a log line."},
		{name: "approvals", value: integer(&o.Approvals, 10_000, 1, 1_000_000), env: env + "APPROVALS",
			doc: "Maximum tool calls that wait for approval; at most half of them, rounded up, are of runs of one key. Further calls that need one are answered with an error."},
		{name: "handovers", value: integer(&o.Handovers, 10_000, 1, 10_000_000), env: env + "HANDOVERS",
			doc: "Maximum stored handovers (answers with client tool calls, whose hidden part is stored for 24 hours). Beyond it the oldest is deleted, with a log line."},
		{name: "responses", value: integer(&o.Responses, 100_000, 1, 10_000_000), env: env + "RESPONSES",
			doc: "Maximum stored responses, conversations, and lists of items added to them, together. Beyond it the oldest is deleted, with a log line."},
		{name: "files", value: integer(&o.Files, 10_000, 1, 1_000_000), env: env + "FILES",
			doc: "Maximum files in all buckets of the kinds disk and database together. Beyond it no more are written."},
		{name: "files_mib", value: mebibytes(&o.FileBytes, 1024, 1, math.MaxInt32), env: env + "FILES_MIB",
			doc: "Maximum size of the files in all buckets of the kinds disk and database together, in MiB. What does not fit is refused before " +
				"it is written."},
		{name: "stored_mib", value: mebibytes(&o.Stored, 10_240, 1, math.MaxInt32), env: env + "STORED_MIB",
			doc: "Maximum size of stored runs, handovers, responses and conversations, in MiB. At the limit new runs, conversations and items are refused. Runs in progress finish, and relayed requests are served."},
	}
}

func (p *Provider) keys() []key {
	return []key{
		{name: "name", value: text(&p.Name, "", "name", checkID), required: true, doc: "Name of the provider, unique among providers."},
		{name: "kind", value: word(&p.Kind, "openai", "openai", "openai-responses", "anthropic", "gemini", "bedrock", "sglang", "vllm", "demo"),
			unbuilt: unbuilt{[]string{"sglang", "vllm"}, "set it to openai, openai-responses, anthropic, gemini, bedrock or demo"},
			doc:     "API of the provider. demo is a scripted offline model."},
		{name: "base_url", value: address(&p.BaseURL, checkURL).or("the kind's own; sglang and vllm have none, demo is built in"),
			doc: "Base URL of the API: what comes before /chat/completions, for openai-responses before /responses, for anthropic before /v1/messages, for gemini before the version, for bedrock before /model. A query is sent with every request. Private addresses are allowed."},
		{name: "api_key", value: credentialKey(&p.APIKey), doc: "Credential for the API. Empty: none is sent. For bedrock an API key of Bedrock, in place of AWS credentials."},
		{name: "api_key_header", value: text(&p.APIKeyHeader, "", "header name", checkHeader).or("the kind's own"),
			doc: "Header that carries the bare key, such as api-key for Azure OpenAI. Not for bedrock."},
		{name: "relay_headers", value: texts(&p.RelayHeaders, nil, "header name", checkRelayed),
			doc: "Only for openai and openai-responses: request headers of clients that relayed requests keep, beside those that OpenAI's clients and Codex send. Not credentials, and not headers of the connection."},
		{name: "models", value: texts(&p.Models, []string{"*"}, "model name or glob", checkWord).notEmpty("is empty, so no request could use the provider; list model names, or remove the key to allow all"),
			doc: "Model names and globs. * matches any characters. GET /v1/models lists the names, and what the provider lists and a glob matches."},
		{name: "default_max_tokens", value: maybeInteger(&p.DefaultMaxTokens, 1, 1_000_000).or("8192"),
			doc: "Only for anthropic, which needs an output limit in every request: the limit in tokens for requests that set none."},
		{name: "region", value: text(&p.Region, "", "region", checkWord), doc: "Only for bedrock, which needs it: the AWS region, such as us-east-1."},
		{name: "access_key_id", value: credentialKey(&p.AccessKeyID), doc: "Only for bedrock. Empty: the AWS credential chain (variables, profiles, roles)."},
		{name: "secret_access_key", value: credentialKey(&p.SecretAccessKey), doc: "Only for bedrock, with access_key_id."},
		{name: "session_token", value: credentialKey(&p.SessionToken), doc: "Only for bedrock, with access_key_id: for temporary credentials."},
		{name: "api_version", value: text(&p.APIVersion, "", "version", checkWord).or("v1beta"), doc: "Only for gemini: the version of the API, a part of its URL."},
	}
}

func (r *Route) keys() []key {
	return []key{
		{name: "model", value: text(&r.Model, "", "model name", checkRouted), required: true, doc: "Model name that clients ask for, unique among routes."},
		{name: "strategy", value: word(&r.Strategy, string(route.Fallback), string(route.Fallback), string(route.RoundRobin), string(route.Weighted), string(route.Latency)),
			doc: "Order in which targets are tried. fallback: as listed. round_robin: each first in turn. weighted: each first as often as its weight says. latency: the one that answers fastest first."},
		{name: "sticky", value: word(&r.Sticky, "", stickySession, stickyNone).or("session with more than one target"),
			doc: "session: a conversation keeps its target, so that the provider's prompt cache works. none: every model call is ordered anew."},
		{name: "targets", value: objects[RouteTarget]{&r.Targets, (*RouteTarget).keys}, required: true, doc: "Models of providers that serve the model, 1 to 16."},
	}
}

// maxWindow is the largest context window that a configuration may give a model, in tokens. minWindow
// is the smallest one that leaves room for a summary.
const (
	minWindow = 512
	maxWindow = 1_000_000_000
)

func (m *Model) keys() []key {
	return []key{
		{name: "model", value: text(&m.Model, "", "model name or glob", checkGlob), required: true, identifies: true, doc: "The provider's name for the model, or a glob. * matches any characters."},
		{name: "provider", value: text(&m.Provider, "", "name", checkID), doc: "Name of a provider of this file. Empty: all providers."},
		{name: "context_window", value: maybeInteger(&m.ContextWindow, minWindow, maxWindow).or("not known"), doc: "Tokens that a prompt and its answer have together at most."},
		{name: "max_input_tokens", value: maybeInteger(&m.MaxInput, minWindow, maxWindow).or("context_window"), doc: "Tokens that a prompt has at most. At most context_window."},
		{name: "images", value: maybeBoolean(&m.Images).or("by name"), doc: "true: the model takes images, and sees those that tools return. " +
			"false: it gets a line of text for each. Empty: true for models that are known to take images."},
	}
}

func (c *Compaction) keys() []key {
	const env = "TURNPIKE_COMPACTION_"
	return []key{
		{name: "model", value: text(&c.Model, "", "model name", checkSummaryModel).or("the model of the run"), env: env + "MODEL",
			doc: "Model that writes summaries, as a request names it. It gets conversations of all orgs that set no compaction_model."},
		{name: "exclude_tools", value: toolNames(&c.ExcludeTools), env: env + "EXCLUDE_TOOLS",
			doc: "Tools whose results are never left out, by the names that the model sees."},
	}
}

func (t *RouteTarget) keys() []key {
	return []key{
		{name: "provider", value: text(&t.Provider, "", "name", checkID), required: true, doc: "Name of a provider of this file."},
		{name: "model", value: text(&t.Model, "", "model name", checkWord), required: true, identifies: true, doc: "The provider's name for the model. It need not be in models of the provider."},
		{name: "weight", value: integer(&t.Weight, 1, 1, 1000), doc: "Only for strategy weighted: the target's share of the requests, relative to the other weights."},
	}
}

func (l *Log) keys() []key {
	return []key{
		{name: "format", value: word(&l.Format, "text", "text", "json"), env: "TURNPIKE_LOG_FORMAT",
			doc: "text: key=value pairs. json: one JSON object per line."},
		{name: "level", live: true, value: word(&l.Level, "info", logLevels()...), env: "TURNPIKE_LOG_LEVEL",
			doc: "Minimum level. info includes one line per request."},
	}
}

func (r *Runs) keys() []key {
	return []key{
		{name: "retention_days", live: true, value: integer(&r.RetentionDays, 30, 0, 36_500), env: "TURNPIKE_RUNS_RETENTION_DAYS",
			doc: "Days after which an ended run is deleted. 0: never. Runs that have not ended and audit rows are kept."},
	}
}

func (a *Audit) keys() []key {
	return []key{
		{name: "key", value: credentialKey(&a.Key), env: "TURNPIKE_AUDIT_KEY",
			doc: "Signs checkpoints of the audit log: 32 random bytes in base64 or hexadecimal. Empty: the file audit.key in data, which the " +
				"gateway creates if needed; with database a key that is made once and kept there, encrypted with master_key."},
		{name: "checkpoints", value: pathKey{text(&a.Checkpoints, "", "file", anyText).or("the file audit.checkpoints in data; with database " +
			"none")}, env: "TURNPIKE_AUDIT_CHECKPOINTS",
			doc: "File in which checkpoints are kept a second time, beside the store. Best on another disk, where lines can only be added. With " +
				"replicas each one writes to the file of its own machine."},
		{name: "retention_days", value: integer(&a.RetentionDays, 0, 0, 36_500), env: "TURNPIKE_AUDIT_RETENTION_DAYS",
			doc: "Days after which audit rows are deleted. 0: never."},
		{name: "usage_retention_days", value: integer(&a.UsageDays, 0, 0, 36_500), env: "TURNPIKE_AUDIT_USAGE_RETENTION_DAYS",
			doc: "Days after which the sums of GET /api/usage are deleted, a day at a time. 0: with the audit rows (audit.retention_days)."},
	}
}

func (o *Outbound) keys() []key {
	return []key{{name: "ssrf", live: true, value: object{o.SSRF.keys()}, doc: "Addresses to refuse."}}
}

func (s *SSRF) keys() []key {
	const env = "TURNPIKE_OUTBOUND_SSRF_"
	return []key{
		{name: "block_loopback", value: boolean(&s.BlockLoopback, true), env: env + "BLOCK_LOOPBACK", doc: "127.0.0.0/8, ::1 and localhost names."},
		{name: "block_private", value: boolean(&s.BlockPrivate, true), env: env + "BLOCK_PRIVATE", doc: "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16."},
		{name: "block_link_local", value: boolean(&s.BlockLinkLocal, true), env: env + "BLOCK_LINK_LOCAL", doc: "169.254.0.0/16 and fe80::/10. Addresses of cloud metadata services are refused even if this is false."},
		{name: "block_multicast", value: boolean(&s.BlockMulticast, true), env: env + "BLOCK_MULTICAST", doc: "224.0.0.0/4 and ff00::/8."},
		{name: "block_cgnat", value: boolean(&s.BlockCGNAT, true), env: env + "BLOCK_CGNAT", doc: "100.64.0.0/10."},
		{name: "block_ula_v6", value: boolean(&s.BlockULAV6, true), env: env + "BLOCK_ULA_V6", doc: "fc00::/7."},
		{name: "extra_blocked_cidrs", value: prefixes(&s.ExtraBlockedCIDRs), env: env + "EXTRA_BLOCKED_CIDRS", doc: "Additional networks to refuse."},
		{name: "allowlist_cidrs", value: prefixes(&s.AllowlistCIDRs), env: env + "ALLOWLIST_CIDRS",
			doc: "Networks to allow. They override the other keys. 169.254.169.254 needs its own /32 entry."},
	}
}

func (o *Org) keys() []key {
	return []key{
		{name: "id", value: text(&o.ID, "", "name", checkID), required: true, doc: "Id of the org, unique among orgs."},
		{name: "features", value: words(&o.Features, MCPOutbound, "has_"+MCPOutbound), doc: "mcp_outbound (or has_mcp_outbound) enables the agent loop for an org with an enabled MCP server, an HTTP tool or a built-in tool."},
		{name: "keys", value: objects[Key]{&o.Keys, (*Key).keys}, doc: "API keys of callers. A key belongs to one org."},
		{name: "runtime", presence: true, value: object{runtimeKeys(&o.Runtime)}, doc: "Settings of runs."},
		{name: "mcp_servers", value: objects[org.MCPServer]{&o.MCPServers, serverKeys}, doc: "MCP servers whose tools runs can use. If two tools have the same name, the first server's tool is used."},
		{name: "http_tools", value: objects[org.HTTPTool]{&o.HTTPTools, httpToolKeys}, doc: "HTTP endpoints that runs can call as tools. See http-tools.md."},
		{name: "webhooks", value: objects[Webhook]{&o.Webhooks, (*Webhook).keys}, doc: "URLs to which the gateway sends events of the org. See webhooks.md."},
		{name: "agents", value: objects[Agent]{&o.Agents, (*Agent).keys}, doc: "Agents of the org, with the members that /api/agents has. They cannot be changed over the API. See agents.md."},
	}
}

func httpToolKeys(t *org.HTTPTool) []key {
	return []key{
		{name: "name", value: text(&t.Name, "", "function name", checkFunction), required: true, doc: "Name of the tool, which the model sees: 1 to 64 letters, digits, _ or -, and a letter or _ at the beginning. Unique in the org."},
		{name: "description", value: text(&t.Description, "", "text", checkDescription), required: true, doc: "What the tool does, for the model: at most 4,096 bytes."},
		{name: "input_schema", value: jsonSchema{&t.InputSchema}, doc: "JSON Schema of the arguments, as a map."},
		{name: "url", value: address(&t.URL, checkEndpoint), required: true, doc: "URL of the endpoint. {NAME} in its path or query stands for the argument NAME, which input_schema must require."},
		{name: "method", value: word(&t.Method, "POST", "GET", "POST", "PUT", "PATCH", "DELETE"), doc: "Method of the request."},
		{name: "arguments", value: word(&t.Arguments, "", org.ArgumentsInBody, org.ArgumentsInQuery).or("query for GET and DELETE, else body"),
			doc: "Where the arguments go that are not in url. body: as a JSON object. query: as parameters of the URL."},
		{name: "headers", value: toolHeaders(&t.Headers), doc: `Headers of every request, such as {Authorization: "Bearer env:TOKEN"} or {Authorization: "Bearer secret:NAME"}.`},
		{name: "class", value: word(&t.Class, tool.Once, string(tool.Once), string(tool.Keyed), string(tool.Read)),
			doc: "What happens to a call whose response is lost. once: it is not repeated, and the model is told that it may have been carried out. keyed: it is repeated, because the endpoint carries out a call with the same Idempotency-Key at most once. read: it is repeated, because it changes nothing."},
		{name: "require_approval", value: word(&t.RequireApproval, org.ApprovalNever, org.ApprovalNever, org.ApprovalAlways), doc: "always: calls wait for the approval of a person. See approvals.md."},
		{name: "timeout", value: duration(&t.Timeout, 30*time.Second, time.Millisecond, time.Hour), doc: "Timeout of a call, with its retries."},
		{name: "max_retries", value: integer(&t.MaxRetries, 2, 0, 10), doc: "Maximum retries of a call that may be repeated, or was not sent."},
		{name: "max_characters", value: integer(&t.MaxCharacters, 10_000, 1, 1_000_000), doc: "Maximum length of a response in characters. Longer ones are cut off with a notice."},
		{name: "max_concurrent_calls", value: integer(&t.MaxConcurrentCalls, 64, 1, 10_000), doc: "Maximum concurrent calls of the tool, over all runs of the org. Further calls wait in order, which counts toward the run's deadline."},
		{name: "price_usd", value: price(&t.Price), doc: "What a call costs, in US dollars. It counts in max_run_cost_usd and in budgets."},
		{name: "enabled", value: boolean(&t.Enabled, true), doc: "false: the tool is not used."},
	}
}

func (w *Webhook) keys() []key {
	return []key{
		{name: "name", value: text(&w.Name, "", "name", checkID), required: true, doc: "Name of the webhook, unique in the org. A webhook of this name that was added over the API is replaced."},
		{name: "url", value: receiverURL(&w.URL), required: true, doc: "URL of the receiver."},
		{name: "events", value: texts(&w.Events, []string{"*"}, "event or pattern such as budget.*", org.CheckWebhookEvent).notEmpty("is empty, so nothing would be sent; list events, or remove the webhook"),
			doc: "Events that are sent: " + strings.Join(org.WebhookEvents(), ", ") + ". * stands for all, response.* and budget.* for those of a kind."},
		{name: "secret", value: credentialKey(&w.Secret).required(), required: true, doc: "Signs the messages: whsec_ followed by the base64 of 24 to 64 random bytes."},
		{name: "secret_previous", value: credentialKey(&w.SecretPrevious), doc: "The previous secret, during a rotation. Each message has a signature of both. Empty: none."},
		{name: "enabled", value: boolean(&w.Enabled, true), doc: "false: nothing is sent, and messages that wait are given up."},
	}
}

func (k *Key) keys() []key {
	return []key{
		{name: "name", value: text(&k.Name, "", "name", checkID), required: true, doc: "Name of the key, unique in the org."},
		{name: "key", value: credentialKey(&k.Key).required(), required: true, doc: "The bearer token that callers send. Only its hash is stored."},
		{name: "role", value: word(&k.Role, org.Member, "owner", "admin", "member", "approver", "reader", "tools"), doc: "Permissions of the key. owner, admin and member may start runs; tools may only call tools over /mcp."},
		{name: "requests_per_minute", value: integer(&k.Rate.PerMinute, 0, 0, org.MaxRate), doc: "Rate limit of the key for all requests. One request is refilled every 60/N seconds. 0: no limit."},
		{name: "burst", value: integer(&k.Rate.Burst, 0, 0, org.MaxRate).or("requests_per_minute"), doc: "Maximum number of requests at once."},
		{name: "servers", value: namesChoice{&k.Access.Servers, "server name", checkID}, doc: "MCP servers of the org that requests with the key can use. With a list, requests cannot declare servers by URL. See access.md."},
		{name: "tools", value: namesChoice{&k.Access.Tools, "glob", org.ValidPattern}, doc: "Tools that requests with the key can use: globs over the servers' own names of the tools."},
		{name: "models", value: namesChoice{&k.Access.Models, "glob", org.ValidPattern}, doc: "Models that requests with the key can ask for: globs over the names that requests have."},
		{name: "end_users", value: boolean(&k.Access.EndUsers, false), doc: "true: each model request with the key must name its end user in safety_identifier, user or metadata.user_id."},
		{name: "read_only", value: boolean(&k.Access.ReadOnly, false), doc: "true: requests with the key can use only tools that the gateway knows to read: those of reads, and of a server with trust those whose annotations say so."},
		{name: "budgets", value: budgetList(&k.Access.Budgets, periodKeys), doc: "Limits on what the model calls of the key cost together, beside the budgets of the org. What does not fit is refused with 429."},
		{name: "context", value: word(&k.Access.Context, "", org.ContextOff, org.ContextPrune, org.ContextAuto).or("the org's"), doc: "Prompts of requests with the key that are too long for the context window: see context in runtime."},
		{name: "expires_at", value: timestamp(&k.ExpiresAt), doc: "When the key stops working."},
	}
}

// runtimeKeys are the settings of an org's runs. The zero value of a new field must
// mean the default: settings that were stored before it was added do not have it.
func runtimeKeys(r *org.Runtime) []key {
	const own = "the surface's own"
	return []key{
		{name: "max_rounds", value: maybeInteger(&r.MaxRounds, 1, budget.MaxRounds).or(own), doc: "Maximum rounds of a run. A round is one model call and its tool calls. At most max_rounds_cap."},
		{name: "max_calls", value: maybeInteger(&r.MaxCalls, 1, 10_000).or(own), doc: "Maximum tool calls of a run."},
		{name: "deadline", value: duration(&r.Deadline, 120*time.Second, time.Millisecond, org.MaxDeadline), doc: "Maximum active time of a run. Time spent waiting for a human does not count."},
		{name: "concurrency", value: integer(&r.Concurrency, 16, 1, 100_000), doc: "Maximum concurrent runs of the org."},
		{name: "max_queued_runs", value: integer(&r.MaxQueued, org.DefaultMaxQueued, 1, 1_000_000), doc: "Maximum runs of the org that wait for one of its concurrency slots: those of responses with background: true. One more is refused with 429."},
		{name: "stream_mode", value: word(&r.StreamMode, org.Live, "live", "final_only", "disabled"), doc: "live: stream the text of every round as it arrives. final_only: stream the text of the last round. disabled: answer with JSON even if the client asks for a stream."},
		{name: "tool_parallelism", value: word(&r.ToolParallelism, "auto", "auto", "parallel", "safe", "serial", "first"), doc: "How the tool calls of one turn are executed. auto: parallel on chat, safe elsewhere. safe: read-only calls in parallel, then the others in order. serial: in order. first: only the first call; the log warns once per run if there are more."},
		{name: "catalog_ttl", value: duration(&r.CatalogTTL, 10*time.Minute, 0, 24*time.Hour), doc: "How long the tool lists of servers are cached. 0: they are fetched for every run."},
		{name: "tool_cache_ttl_seconds", value: seconds(&r.ToolCacheTTL, 0, 0, 86_400), doc: "How long a tool result is reused for an identical call, in seconds. 0: off. The server's cache selects the tools."},
		{name: "tool_result_max_bytes", value: maybeInteger(&r.ToolResultMaxBytes, 1024, math.MaxInt32).or(own), doc: "Maximum size in bytes of a tool result that the model sees. Longer results are truncated with a notice."},
		{name: "tool_arg_validation", value: word(&r.ToolArgValidation, "strict", "strict", "lenient", "none"), doc: "Validation of arguments against the tool's schema. strict: an invalid call is not executed, and the model gets the violations. lenient: types are converted first (\"5\" to 5, true to \"true\", a value to a list of one), then validated again. none: no validation."},
		{name: "tool_error_mode", value: word(&r.ToolErrorMode, "recover", "recover", "abort"), doc: "recover: the model gets the error of a failed call. abort: the run ends."},
		{name: "on_limit", value: word(&r.OnLimit, "", "stop", "answer", "pause").or(own), doc: "At a limit: stop ends the run, answer gives the last round no tools, pause lets a durable run wait until somebody raises the limit. Other runs do under pause what the surface does without the setting."},
		{name: "doom_loop", value: word(&r.DoomLoop, "", "nudge", "fail", "off").or(own), doc: "What happens when the model repeats calls. nudge: the repeated calls get advice as their result, and a later turn that repeats them ends the run. fail: the repeated call ends the run. off: nothing."},
		{name: "doom_threshold", value: integer(&r.DoomThreshold, policy.DefaultThreshold, 2, 100), doc: "Number of identical calls in a row at which doom_loop acts. Other kinds of repetition need two or four times as many."},
		{name: "doom_failures", value: integer(&r.DoomFailures, policy.DefaultFailures, 1, 100), doc: "Number of failed calls of one tool since its last success, with whatever arguments, after which doom_loop acts on its next call."},
		{name: "dropped_params", value: word(&r.DroppedParams, "name", "name", "refuse"), doc: "Request fields that a run cannot support. name: the header turnpike-dropped-params lists them. refuse: the request gets 400."},
		{name: "max_run_tokens", value: maybeInteger(&r.MaxRunTokens, 1, math.MaxInt32).or("no limit"), doc: "Maximum tokens of a run: input and output of all model calls. Each model call gets the remaining number as its output limit."},
		{name: "max_run_cost_usd", value: dollars(&r.MaxRunCost), doc: "Maximum cost of a run in US dollars: all its model calls and tool calls. A model without a price is refused. The header turnpike-max-run-cost-usd can lower it for one request."},
		{name: "unpriced_tools", value: word(&r.UnpricedTools, org.FreeTools, org.FreeTools, org.RefuseTools), doc: "Calls of tools without a price (price_usd and tool_prices_usd of their server) in runs that a limit on money applies to. free: they cost nothing. refuse: they are not executed."},
		{name: "budgets", value: budgetList(&r.Budgets, budgetKeys), doc: "Limits on what the model calls of a day, of a month or of all time cost together. What does not fit is refused with 429."},
		{name: "hooks", value: hookList(&r.Hooks), doc: "What happens at points of runs: conditions, URLs and people that deny, modify or ask. At most 50. See hooks.md."},
		{name: "builtin_tools", value: builtinList(&r.BuiltinTools), doc: "Built-in tools that runs of the org can use, beside those of its agents. See tools.md."},
		{name: "web", value: configObject{object{webKeys(&r.Web)}}, doc: "The tools http_request, web_search and web_scrape. See tool-web.md."},
		{name: "agent_permission", value: word(&r.AgentPermission, string(policy.Auto), string(policy.Auto), string(policy.Ask), string(policy.Deny)), doc: "Tool calls that the gateway executes. auto: they run, unless their own rules ask for approval. ask: each waits for the approval of a person. deny: none runs, and the model is told so. It holds for all runs and for /mcp. agent_permission of a chat request can only be stricter. See runtime.md."},
		{name: "enable_search", value: boolean(&r.EnableSearch, false), doc: "true: chat requests run the agent loop and are offered web_search and fetch_page, also without the feature mcp_outbound; so are requests to /v1/responses with a tool of the type web_search. Needs web.search. See runtime.md."},
		{name: "enable_code_execution", value: boolean(&r.EnableCode, false), doc: "true: a chat request with enable_code_execution: true or a tool of the type code_interpreter runs the agent loop and is offered execute_python and execute_javascript; so is a request to /v1/responses with that tool. Needs sandbox.drivers. See runtime.md."},
		{name: "tool_names", value: word(&r.ToolNames, org.ToolNamesStandard, org.ToolNamesStandard, org.ToolNamesMistralRS), doc: "Names of the tools that enable_code_execution offers. standard: execute_python and surface_outputs. mistralrs: mistralrs_execute_python and mistralrs_surface_outputs. Calls by the other names are executed, too. See runtime.md."},
		{name: "max_tool_rounds", value: maybeInteger(&r.MaxToolRounds, 1, org.MaxToolRounds).or("256 where a switch runs the agent loop and max_rounds is not set"), doc: "Maximum rounds of tool calls of a chat request, which then runs the agent loop. The model is called once more; if it asks for tools again, the client gets these calls. At most max_rounds_cap; with a lower max_rounds at most so many model calls. max_tool_rounds of a request replaces it. See runtime.md."},
		{name: "buckets", value: bucketList(&r.Buckets), doc: "Where the org keeps files, for the tools storage_read and storage_write and for the API. At most 20. See tool-storage.md."},
		{name: "databases", value: databaseList(&r.Databases), doc: "Databases of the tools database_query and database_write. At most 20. See tool-database.md."},
		{name: "durable", value: word(&r.Durable, "auto", "auto", "always"), doc: "Which runs survive a crash and a disconnected client. auto: runs with an Idempotency-Key. always: all runs. Each step of a durable run is on disk before the next one starts."},
		{name: "approval_hold", value: duration(&r.ApprovalHold, org.DefaultApprovalHold, time.Second, 24*time.Hour), doc: "How long a chat request stays open while tool calls of its run wait for approval. A run without an Idempotency-Key waits no longer: then the calls count as denied."},
		{name: "session_ttl", value: orForever(duration(&r.SessionTTL, org.DefaultSessionTTL, time.Second, 365*24*time.Hour)), doc: "How long a session of a chat client (session_id) is kept after its last use. never: until it is deleted. See chat-sessions.md."},
		{name: "approvers", value: word(&r.Approvers, org.AnyApproves, org.AnyApproves, org.OthersApprove), doc: "Who may decide about tool calls that wait. any: every key with the role owner, admin or approver. others: not the key that started the run."},
		{name: "model_lists", value: word(&r.ModelLists, org.RefuseLists, org.RefuseLists, org.AllowLists), doc: "Requests whose model is a list such as \"a, b\". refuse: they get 400. allow: the list is a fallback list of at most 8 models."},
		{name: "context", value: unsetWord(word(&r.Context, "", org.ContextOff, org.ContextPrune, org.ContextAuto).or("off; auto for runs of agents")), doc: "Prompts that are too long for the context window of their model, in runs with the agent loop. off: the provider refuses them. prune: old tool results are left out. auto: the same, and where it does not free enough the older part is summarised. A key and a request can ask for something else. See context.md."},
		{name: "compaction_model", value: text(&r.CompactionModel, "", "model name", checkSummaryModel).or("compaction.model of the operator"), doc: "Model that writes summaries of the org's conversations, as a request names it."},
		{name: "compaction_exclude_tools", value: toolNames(&r.CompactionExclude), doc: "Tools whose results are never left out, by the names that the model sees, beside those of the operator."},
		{name: "requests_per_minute", value: integer(&r.Rate.PerMinute, 0, 0, org.MaxRate), doc: "Rate limit of the org for the model API, over all its keys. One request is refilled every 60/N seconds. 0: no limit."},
		{name: "burst", value: integer(&r.Rate.Burst, 0, 0, org.MaxRate).or("requests_per_minute"), doc: "Maximum number of requests at once."},
		{name: "extensions", value: words(&r.Extensions, "trace", "progress", "files", "session", "cost"),
			doc: "Response extensions that are on by default, beside those of the header turnpike-extensions."},
	}
}

// serverKeys are the settings of an MCP server. As with runtimeKeys, the zero value
// of a new field must mean the default.
func serverKeys(m *org.MCPServer) []key {
	return []key{
		{name: "name", value: text(&m.Name, "", "name", checkID), required: true, doc: "Name of the server, unique in the org."},
		{name: "url", value: address(&m.URL, checkURL), doc: "URL of the server. Either url or command is required."},
		{name: "command", fileOnly: "it starts a program on the gateway's machine", value: commandLine(&m.Command), doc: "Program and arguments of a stdio server. It runs in the gateway's working directory."},
		{name: "env", fileOnly: "it belongs to command", value: variables(&m.Env), doc: "Environment variables of command."},
		{name: "enabled", value: boolean(&m.Enabled, true), doc: "false: the server is not used."},
		{name: "tools", value: toolsChoice(&m.Tools), doc: "Tools of the server that runs can use."},
		{name: "headers", value: headers(&m.Headers), doc: `Headers of every request, such as {Authorization: "Bearer env:TOKEN"} or {Authorization: "Bearer secret:NAME"}.`},
		{name: "require_approval", value: approvalChoice{&m.RequireApproval}, doc: "Calls that wait for the approval of a person. never: none. always: all. writes: all except those of read-only tools by annotation, if the server has trust: true. A map: those that always selects, and, if never is given, all that never does not select. See approvals.md."},
		{name: "approval_timeout", value: duration(&m.ApprovalTimeout, org.DefaultApprovalTimeout, time.Second, 90*24*time.Hour), doc: "How long a call waits for approval. Then it counts as denied."},
		{name: "timeout", value: duration(&m.Timeout, 30*time.Second, time.Millisecond, time.Hour), doc: "Timeout of a tool discovery and of a call."},
		{name: "max_retries", value: integer(&m.MaxRetries, 2, 0, 10), doc: "Maximum retries of a discovery, and of a call that may be repeated."},
		{name: "required", value: boolean(&m.Required, false), doc: "true: a run fails if the server is unavailable. false: the run continues without its tools."},
		{name: "trust", value: boolean(&m.Trust, false), doc: "true: trust the server's tool annotations."},
		{name: "naming", value: word(&m.Naming, "bare", "bare", "namespaced", "prefixed"), doc: "Tool names that the model sees. bare: tool. namespaced: mcp__server__tool. prefixed: prefix_tool."},
		{name: "prefix", value: text(&m.Prefix, "", "prefix", checkPrefix).or("the server's name"), doc: "Only for naming: prefixed."},
		{name: "polling", value: toolNames(&m.Polling), doc: "Tools that are called repeatedly on purpose. doom_loop ignores them."},
		{name: "reads", value: toolNames(&m.Reads), doc: "Read-only tools, by the server's own names. They override annotations. Their calls may be repeated and run in parallel."},
		{name: "keyed", value: toolNames(&m.Keyed), doc: "Tools that the server executes at most once per idempotency key. The gateway repeats a call if its answer is lost. The key is in _meta (turnpike/idempotencyKey) and in the header Idempotency-Key."},
		{name: "hosted", value: texts(&m.Hosted, nil, "TYPE=TOOL", checkHosted), doc: "Tools that answer hosted tools of requests to /v1/responses, such as [web_search=search]. TYPE is web_search, file_search, code_interpreter or image_generation. TOOL is the server's own name of the tool. A type can be in one server of the org."},
		{name: "cache", value: cacheChoice{&m.Cache}, doc: "Tools whose results are cached, if tool_cache_ttl_seconds is set. read_only: tools that are read-only by annotation or in reads. all: all except tools that are known to write. A list: the named tools. Tools in polling must be named."},
		{name: "price_usd", value: price(&m.Price), doc: "What an execution of a tool of the server costs, in US dollars. It counts in max_run_cost_usd and in budgets."},
		{name: "tool_prices_usd", value: prices{&m.ToolPrices}, doc: "What an execution of one of these tools costs instead, by the server's own names."},
		{name: "max_concurrent_calls", value: integer(&m.MaxConcurrentCalls, 256, 1, 10_000), doc: "Maximum concurrent calls to the server, over all runs of the org. Further calls wait in order. Waiting counts toward the run's deadline, not toward timeout."},
	}
}

// sharedKeys are the settings of an MCP server that orgs share.
func sharedKeys(m *org.SharedServer) []key {
	return append(serverKeys(&m.MCPServer), key{name: "orgs", required: true, value: namesChoice{&m.Orgs, "org id", checkID},
		doc: `Orgs that have the server: "*" for all, also those that are created later, or a list of ids. A header of the server can contain {org}, for the id of the org; its references can be env: and file:.`})
}

func approvalKeys(a *org.Approval) []key {
	return []key{
		{name: "always", value: filter{&a.Always}, doc: "Tools whose calls need approval, also if never selects them."},
		{name: "never", value: filter{&a.Never}, doc: "Tools whose calls do not need approval. All others do."},
	}
}

func filterKeys(f *org.ToolFilter) []key {
	return []key{
		{name: "tool_names", value: toolNames(&f.ToolNames), doc: "Tools with these names."},
		{name: "read_only", value: maybeBoolean(&f.ReadOnly), doc: "true: read-only tools by annotation, if the server has trust: true. false: the others."},
	}
}

func toolNames(into *[]string) list[string] {
	return texts(into, nil, "tool name", checkWord)
}
