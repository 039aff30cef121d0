package config

import (
	"math"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// keys is the table of the whole file.
func (c *Config) keys() []key {
	return []key{
		{name: "listen", value: text(&c.Listen, "127.0.0.1:8080", "host:port", checkListen), env: "TURNPIKE_LISTEN",
			doc: "Address that the gateway serves on. Port 0 takes a free one."},
		{name: "public_hosts", value: texts(&c.PublicHosts, nil, "host name", checkHost), env: "TURNPIKE_PUBLIC_HOSTS",
			doc: "Names that clients know the gateway by, without ports. With at least one, requests to other names are refused. Empty: the same where listen is a loopback address, else every name is taken. Addresses and localhost always work."},
		{name: "allowed_origins", value: texts(&c.AllowedOrigins, nil, "origin such as https://app.example.com", checkOrigin), env: "TURNPIKE_ALLOWED_ORIGINS",
			doc: "Sites whose pages may send requests that change something, beside the gateway's own. The gateway answers no CORS requests itself."},
		{name: "max_connections", value: integer(&c.MaxConnections, 20_000, 1, 1_000_000), env: "TURNPIKE_MAX_CONNECTIONS",
			doc: "Clients that may be connected at a time; never more than half of the files that the process may open. One more is answered 503."},
		{name: "max_requests", value: integer(&c.MaxRequests, 20_000, 1, 1_000_000), env: "TURNPIKE_MAX_REQUESTS",
			doc: "Requests for a model that may be under way at a time. An org may have twice as many of them as there are places left: alone it gets two thirds of them. One more is answered 503."},
		{name: "data", value: text(&c.Data, "./turnpike-data", "directory", checkPath), env: "TURNPIKE_DATA",
			doc: "Directory of the SQLite file and of uploaded files, relative to the working directory."},
		{name: "database", value: credentialKey(&c.Database), env: "TURNPIKE_DATABASE_URL",
			doc: "Empty for SQLite in data; postgres://… for many machines."},
		{name: "redis", value: credentialKey(&c.Redis), env: "TURNPIKE_REDIS_URL",
			doc: "Redis for shared slots, cache and doorbells; empty for none."},
		{name: "clickhouse", value: credentialKey(&c.ClickHouse), env: "TURNPIKE_CLICKHOUSE_URL",
			doc: "ClickHouse as a sink for analytics; empty for none."},
		{name: "max_rounds_cap", value: integer(&c.MaxRoundsCap, 50, 1, 50), env: "TURNPIKE_MAX_ROUNDS_CAP",
			doc: "The most rounds that any run may have, whatever its org says."},
		{name: "operator_key", value: credentialKey(&c.OperatorKey), env: "TURNPIKE_OPERATOR_KEY",
			doc: "Key of the operator, who creates and deletes orgs over /api/orgs. Empty: nobody does."},
		{name: "master_key", value: credentialKey(&c.MasterKey), env: "TURNPIKE_MASTER_KEY",
			doc: "Seals the secrets of orgs: 32 random bytes in base64 or hexadecimal, such as openssl rand -base64 32 makes. Empty: orgs have no vault."},
		{name: "master_key_previous", value: credentialKey(&c.MasterKeyPrevious), env: "TURNPIKE_MASTER_KEY_PREVIOUS",
			doc: "The master_key before this one, for the start at which it was changed."},
		{name: "cache_pepper", value: credentialKey(&c.CachePepper), env: "TURNPIKE_AGENT_CACHE_PEPPER",
			doc: "Signs what tool_cache_ttl_seconds keeps: a long random text. Another one makes all of it unknown. Empty: a new one at every start."},
		{name: "providers", value: objects[Provider]{&c.Providers, (*Provider).keys},
			doc: "Model APIs. A model goes to the first provider whose models match it; name/model always goes to the provider called name."},
		{name: "rates", value: text(&c.Rates, "", "file", anyText),
			doc: "File with the operator's own prices per model."},
		{name: "outbound", value: object{c.Outbound.keys()},
			doc: "Guards every address that orgs, users, models and remote servers can name. Provider base URLs are the operator's own and are not guarded."},
		{name: "audit", value: object{c.Audit.keys()}, doc: "How the audit is kept."},
		{name: "telemetry", value: object{c.Telemetry.keys()},
			doc: "What the operator's own tools are shown: spans for OpenTelemetry, metrics for Prometheus."},
		{name: "orgs", value: objects[Org]{&c.Orgs, (*Org).keys}, doc: "Isolated customers."},
	}
}

func (p *Provider) keys() []key {
	return []key{
		{name: "name", value: text(&p.Name, "", "name", checkID), required: true, doc: "Unique among providers."},
		{name: "kind", value: word(&p.Kind, "openai", "openai", "openai-responses", "anthropic", "gemini", "bedrock", "sglang", "vllm", "demo"),
			doc: "Dialect that the provider speaks. demo is a scripted offline model."},
		{name: "base_url", value: text(&p.BaseURL, "", "http or https URL", checkURL).or("the kind's own; sglang and vllm have none, demo is built in"),
			doc: "Where the API is. It may be private."},
		{name: "api_key", value: credentialKey(&p.APIKey), doc: "Credential for the API; empty sends none."},
		{name: "models", value: texts(&p.Models, []string{"*"}, "model name or glob", checkWord),
			doc: "Exact names and globs, in which * stands for any characters."},
		{name: "region", value: text(&p.Region, "", "region", checkWord), doc: "Only for bedrock."},
		{name: "access_key_id", value: credentialKey(&p.AccessKeyID), doc: "Only for bedrock; without it the usual AWS chain is used."},
		{name: "secret_access_key", value: credentialKey(&p.SecretAccessKey), doc: "Only for bedrock."},
		{name: "api_version", value: text(&p.APIVersion, "", "version", checkWord), doc: "Only for gemini."},
	}
}

func (a *Audit) keys() []key {
	return []key{
		{name: "key", value: credentialKey(&a.Key), env: "TURNPIKE_AUDIT_KEY",
			doc: "Signs checkpoints of the audit: 32 random bytes in base64 or hexadecimal. Empty: the file audit.key in data, which is made when it is not there."},
		{name: "checkpoints", value: text(&a.Checkpoints, "", "file", checkPath).or("the file audit.checkpoints in data"), env: "TURNPIKE_AUDIT_CHECKPOINTS",
			doc: "File in which checkpoints are kept a second time, relative to the working directory. Best on another disk, where lines can only be added."},
		{name: "retention_days", value: integer(&a.RetentionDays, 0, 0, 36_500), env: "TURNPIKE_AUDIT_RETENTION_DAYS",
			doc: "How long rows are kept; 0 = for ever."},
	}
}

func (o *Outbound) keys() []key {
	return []key{{name: "ssrf", value: object{o.SSRF.keys()}, doc: "Which addresses are refused."}}
}

func (s *SSRF) keys() []key {
	const env = "TURNPIKE_OUTBOUND_SSRF_"
	return []key{
		{name: "block_loopback", value: boolean(&s.BlockLoopback, true), env: env + "BLOCK_LOOPBACK", doc: "127.0.0.0/8, ::1 and the names of this machine."},
		{name: "block_private", value: boolean(&s.BlockPrivate, true), env: env + "BLOCK_PRIVATE", doc: "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16."},
		{name: "block_link_local", value: boolean(&s.BlockLinkLocal, true), env: env + "BLOCK_LINK_LOCAL", doc: "169.254.0.0/16 and fe80::/10, with the metadata services of clouds."},
		{name: "block_multicast", value: boolean(&s.BlockMulticast, true), env: env + "BLOCK_MULTICAST", doc: "224.0.0.0/4 and ff00::/8."},
		{name: "block_cgnat", value: boolean(&s.BlockCGNAT, true), env: env + "BLOCK_CGNAT", doc: "100.64.0.0/10."},
		{name: "block_ula_v6", value: boolean(&s.BlockULAV6, true), env: env + "BLOCK_ULA_V6", doc: "fc00::/7."},
		{name: "extra_blocked_cidrs", value: prefixes(&s.ExtraBlockedCIDRs), env: env + "EXTRA_BLOCKED_CIDRS", doc: "More networks to refuse."},
		{name: "allowlist_cidrs", value: prefixes(&s.AllowlistCIDRs), env: env + "ALLOWLIST_CIDRS",
			doc: "Networks that are allowed whatever else is said here; 169.254.169.254 only by a /32 of its own."},
	}
}

func (o *Org) keys() []key {
	return []key{
		{name: "id", value: text(&o.ID, "", "name", checkID), required: true, doc: "Unique among orgs."},
		{name: "features", value: words(&o.Features, MCPOutbound, "has_"+MCPOutbound), doc: "mcp_outbound (also has_mcp_outbound) turns the agent loop on for orgs with an enabled server."},
		{name: "keys", value: objects[Key]{&o.Keys, (*Key).keys}, doc: "Credentials of callers. A key belongs to one org."},
		{name: "runtime", value: object{o.Runtime.keys()}, doc: "How runs behave."},
		{name: "mcp_servers", value: objects[MCPServer]{&o.MCPServers, (*MCPServer).keys}, doc: "Servers whose tools runs get. On a collision of tool names the first server wins."},
	}
}

func (k *Key) keys() []key {
	return []key{
		{name: "name", value: text(&k.Name, "", "name", checkID), required: true, doc: "Unique among the keys of the org."},
		{name: "key", value: credentialKey(&k.Key).required(), required: true, doc: "What callers send as a bearer token. Only its hash is stored."},
		{name: "role", value: word(&k.Role, "member", "owner", "admin", "member", "approver", "reader"), doc: "What the key may do. owner, admin and member may run."},
		{name: "requests_per_minute", value: integer(&k.RequestsPerMinute, 0, 0, org.MaxRate), doc: "Requests that may be made with the key, of every kind; one comes back every 60/N seconds. 0 is no limit."},
		{name: "burst", value: integer(&k.Burst, 0, 0, org.MaxRate).or("requests_per_minute"), doc: "How many of them may be made at once."},
	}
}

func (r *Runtime) keys() []key {
	const own = "the surface's own"
	return []key{
		{name: "max_rounds", value: maybeInteger(&r.MaxRounds, 1, 50).or(own), doc: "Model calls of a run, each with the tool calls it asks for; at most max_rounds_cap."},
		{name: "max_calls", value: maybeInteger(&r.MaxCalls, 1, 10_000).or(own), doc: "Tool calls of a run."},
		{name: "max_run_tokens", value: maybeInteger(&r.MaxRunTokens, 1, math.MaxInt32).or("no limit"), doc: "Tokens of a run: input and output of all its model calls. Each call is told how much it may still say."},
		{name: "deadline", value: duration(&r.Deadline, 120*time.Second, time.Millisecond, 24*time.Hour), doc: "Active time of a run; waiting for a human does not count."},
		{name: "concurrency", value: integer(&r.Concurrency, 16, 1, 100_000), doc: "Runs of the org at a time."},
		{name: "stream_mode", value: word(&r.StreamMode, "live", "live", "final_only", "disabled"), doc: "live: every round's text as it arrives. final_only: the last round's. disabled: JSON even where a stream was asked for."},
		{name: "tool_parallelism", value: word(&r.ToolParallelism, "auto", "auto", "parallel", "safe", "serial", "first"), doc: "How the calls of one turn run. auto: parallel on chat and library, safe elsewhere. safe: read-only calls in parallel, the others after them in order. first: the first only."},
		{name: "tool_cache_ttl_seconds", value: integer(&r.ToolCacheTTLSeconds, 0, 0, 86_400), doc: "How long the result of a tool may be used again for the same call; 0 is off. Which tools: cache of their server."},
		{name: "catalog_ttl", value: duration(&r.CatalogTTL, 10*time.Minute, 0, 24*time.Hour), doc: "How long the list of tools is kept; 0 asks on every run."},
		{name: "tool_result_max_bytes", value: maybeInteger(&r.ToolResultMaxBytes, 1024, math.MaxInt32).or(own), doc: "Longest tool result that the model sees; longer ones are cut and say so."},
		{name: "tool_arg_validation", value: word(&r.ToolArgValidation, "strict", "strict", "lenient", "none"), doc: "Whether arguments must fit the tool's schema. lenient converts types first."},
		{name: "tool_error_mode", value: word(&r.ToolErrorMode, "recover", "recover", "abort"), doc: "recover: the model is told about a failed call. abort: the run ends."},
		{name: "on_limit", value: word(&r.OnLimit, "", "stop", "answer").or(own), doc: "At the round limit: stop, or answer in a last round without tools."},
		{name: "doom_loop", value: word(&r.DoomLoop, "", "nudge", "fail", "off").or(own), doc: "What a third identical call in a row does: tell the model, end the run, nothing."},
		{name: "dropped_params", value: word(&r.DroppedParams, "name", "name", "refuse"), doc: "Request fields that a run cannot carry: named in the header turnpike-dropped-params, or the request is refused with 400."},
		{name: "durable", value: word(&r.Durable, "auto", "auto", "always"), doc: "Which runs survive a crash and the loss of their client. auto: those whose request has an Idempotency-Key. always: all of them; each step is then on disk before the next."},
		{name: "requests_per_minute", value: integer(&r.RequestsPerMinute, 0, 0, org.MaxRate), doc: "Requests that the org may make to the model API, with all its keys; one comes back every 60/N seconds. 0 is no limit."},
		{name: "burst", value: integer(&r.Burst, 0, 0, org.MaxRate).or("requests_per_minute"), doc: "How many of them may be made at once."},
		{name: "extensions", value: words(&r.Extensions, "trace", "progress", "files", "session", "cost"), doc: "Extensions of answers that the org gets without asking for them."},
	}
}

func (m *MCPServer) keys() []key {
	return []key{
		{name: "name", value: text(&m.Name, "", "name", checkID), required: true, doc: "Unique among the servers of the org."},
		{name: "url", value: text(&m.URL, "", "http or https URL", checkURL), doc: "Where the server is. This or command is required."},
		{name: "command", value: texts(&m.Command, nil, "text", anyText), doc: "Program and arguments of a server that speaks over standard input and output."},
		{name: "env", value: variables(&m.Env), doc: "Environment of command."},
		{name: "enabled", value: boolean(&m.Enabled, true), doc: "false: the server is neither asked nor called."},
		{name: "tools", value: toolsChoice{&m.Tools}, doc: "Which of its tools are offered."},
		{name: "headers", value: headers(&m.Headers), doc: `Headers of every request, such as {Authorization: "Bearer env:TOKEN"} or {Authorization: "Bearer secret:NAME"}.`},
		{name: "require_approval", value: approvalChoice{&m.RequireApproval}, doc: "Which calls wait for a human."},
		{name: "timeout", value: duration(&m.Timeout, 30*time.Second, time.Millisecond, time.Hour), doc: "Longest discovery, and longest call."},
		{name: "required", value: boolean(&m.Required, false), doc: "true: a run fails when the server is down. false: it goes on without these tools."},
		{name: "trust", value: boolean(&m.Trust, false), doc: "true: believe the server's annotations, for approval and parallelism."},
		{name: "cache", value: cacheChoice{&m.Cache}, doc: "Whose results may be used again, where tool_cache_ttl_seconds is set: tools that only read, as they or reads say; all but those that are known to write; or those named. Tools in polling must be named."},
		{name: "naming", value: word(&m.Naming, "bare", "bare", "namespaced", "prefixed"), doc: "How the model sees a tool: tool, mcp__server__tool, or prefix_tool."},
		{name: "prefix", value: text(&m.Prefix, "", "prefix", checkPrefix).or("the server's name"), doc: "Only for naming: prefixed."},
		{name: "max_retries", value: integer(&m.MaxRetries, 2, 0, 10), doc: "Repeats of discovery and of calls that may be repeated."},
		{name: "polling", value: toolNames(&m.Polling), doc: "Tools that are expected to be called again and again: exempt from doom_loop."},
		{name: "reads", value: toolNames(&m.Reads), doc: "Tools that only read, by the server's own names and whatever it says: repeated freely, in parallel with others."},
		{name: "keyed", value: toolNames(&m.Keyed), doc: "Tools that the server executes once for each idempotency key, so that a call may be repeated when its answer is lost. The key is in _meta, as turnpike/idempotencyKey, and in the header Idempotency-Key."},
		{name: "concurrency", value: integer(&m.Concurrency, 10, 1, 1000), doc: "Calls of the server at a time. More wait in order; waiting counts for the run's deadline and not for timeout."},
	}
}

func (a *Approval) keys() []key {
	return []key{
		{name: "always", value: filter{&a.Always}, doc: "Tools whose calls wait."},
		{name: "never", value: filter{&a.Never}, doc: "Tools whose calls do not."},
	}
}

func (f *ToolFilter) keys() []key {
	return []key{
		{name: "tool_names", value: toolNames(&f.ToolNames), doc: "Tools by name."},
		{name: "read_only", value: maybeBoolean(&f.ReadOnly), doc: "Tools that say they only read (true), or do not (false)."},
	}
}

func toolNames(into *[]string) list[string] {
	return texts(into, nil, "tool name", checkWord)
}
