package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

const example = `
listen: 127.0.0.1:9000
data: /var/lib/turnpike
database: ""
max_rounds_cap: 20
providers:
  - name: openai
    kind: openai
    base_url: http://10.0.0.7:8000/v1/
    api_key: env:OPENAI_API_KEY       # a comment
    models: [gpt-5.4, "gpt-*", gpt-5.4]
  - {name: toy, kind: demo}
outbound:
  ssrf: {block_loopback: true, block_private: false, extra_blocked_cidrs: [203.0.113.0/24], allowlist_cidrs: [127.0.0.0/8, "fd00::/64"]}
orgs:
  - id: default
    features: [has_mcp_outbound]
    keys:
      - {name: dev, key: env:TURNPIKE_KEY, role: owner}
      - name: ci
        key: file:/run/secrets/ci
    runtime: {max_rounds: 10, max_calls: 40, deadline: 90s, concurrency: 4, max_queued_runs: 50, stream_mode: final_only, tool_parallelism: safe, tool_cache_ttl_seconds: 300, catalog_ttl: 0, tool_result_max_bytes: 65536, tool_arg_validation: none, tool_error_mode: abort, on_limit: answer, doom_loop: off, doom_threshold: 5, approval_hold: 45s, session_ttl: never, approvers: others, extensions: []}
    mcp_servers:
      - name: everything
        url: http://127.0.0.1:3001/mcp
        enabled: false
        tools: [echo, add]
        headers: {authorization: "Bearer env:GH_TOKEN", X-Team: blue}
        require_approval: {always: {tool_names: [echo]}, never: {read_only: true}}
        approval_timeout: 2h
        timeout: 5s
        required: true
        trust: true
        cache: [search, echo]
        naming: prefixed
        prefix: every
        max_retries: 0
        polling: [echo]
        reads: [search]
        keyed: [order, refund]
        hosted: [web_search=echo, code_interpreter=add]
        max_concurrent_calls: 3
      - {name: second, url: "https://tools.example/mcp"}
  - id: other
org_caps: {keys: 5, mcp_servers: 6, secrets: 7, webhooks: 12, agents: 14, tools: 16, sessions: 15, webhook_deliveries: 13, approvals: 10, handovers: 8, responses: 11, files: 17, files_mib: 18, stored_mib: 9}
log: {format: json, level: warn}
runs: {retention_days: 7}
min_free_disk_mib: 0
`

// same compares configurations by what they say, not by where it was said.
func same() cmp.Option {
	return cmp.Options{cmpopts.IgnoreUnexported(Config{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
}

func mustText(t *testing.T, s string) secret.Text {
	t.Helper()
	text, err := secret.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func defaultRuntime() org.Runtime {
	return org.Runtime{
		Deadline: 120 * time.Second, Concurrency: 16, MaxQueued: 10_000, StreamMode: "live", ToolParallelism: "auto", CatalogTTL: 10 * time.Minute,
		ToolArgValidation: "strict", ToolErrorMode: "recover", DoomThreshold: 3, DoomFailures: 5, DroppedParams: "name", UnpricedTools: "free", Durable: "auto",
		ApprovalHold: 300 * time.Second, SessionTTL: 30 * time.Minute, Approvers: "any", ModelLists: "refuse", ToolNames: "standard", AgentPermission: "auto", Web: defaultWeb,
	}
}

func allBlocked() SSRF {
	return SSRF{BlockLoopback: true, BlockPrivate: true, BlockLinkLocal: true, BlockMulticast: true, BlockCGNAT: true, BlockULAV6: true}
}

func TestEveryKeyReachesItsField(t *testing.T) {
	got, err := Parse("turnpike.yaml", []byte(example), nothing)
	if err != nil {
		t.Fatal(err)
	}
	ssrf := allBlocked()
	ssrf.BlockPrivate = false
	ssrf.ExtraBlockedCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	ssrf.AllowlistCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/64")}
	want := &Config{
		Log:    Log{"json", "warn"},
		Listen: "127.0.0.1:9000", MaxConnections: 20_000, MaxRequests: 20_000, MaxRetainedRunMiB: 64, MaxRelayBodyMiB: 32, MaxSpoolMiB: 1024,
		MaxFollowersPerRun: 16, Data: "/var/lib/turnpike", Postgres: noPostgres(), MaxRoundsCap: 20, Runs: Runs{RetentionDays: 7},
		MinFreeDiskMiB: 0, ToolDispatch: noDispatch(), Sandbox: noSandbox(), OrgCaps: org.Caps{Keys: 5, MCPServers: 6, Secrets: 7,
			Webhooks: 12, Agents: 14, Tools: 16, Sessions: 15, Deliveries: 13, Approvals: 10, Handovers: 8, Responses: 11, Files: 17,
			FileBytes: 18 << 20, Stored: 9 << 20},
		Providers: []Provider{
			{Name: "openai", Kind: "openai", BaseURL: "http://10.0.0.7:8000/v1", APIKey: mustText(t, "env:OPENAI_API_KEY"), Models: []string{"gpt-5.4", "gpt-*", "gpt-5.4"}},
			{Name: "toy", Kind: "demo", Models: []string{"*"}},
		},
		Outbound: Outbound{ssrf},
		Orgs: []Org{
			{
				ID: "default", Features: []string{MCPOutbound},
				Keys: []Key{
					{Name: "dev", Key: mustText(t, "env:TURNPIKE_KEY"), Role: "owner"},
					{Name: "ci", Key: mustText(t, "file:/run/secrets/ci"), Role: "member"},
				},
				Runtime: org.Runtime{
					MaxRounds: new(10), MaxCalls: new(40), Deadline: 90 * time.Second, Concurrency: 4, MaxQueued: 50, StreamMode: "final_only", ToolParallelism: "safe", ToolCacheTTL: 300 * time.Second,
					ToolResultMaxBytes: new(65536), ToolArgValidation: "none", ToolErrorMode: "abort", OnLimit: "answer", DoomLoop: "off", DoomThreshold: 5, DoomFailures: 5, DroppedParams: "name", UnpricedTools: "free", Durable: "auto",
					ApprovalHold: 45 * time.Second, SessionTTL: org.Forever, Approvers: "others", ModelLists: "refuse", ToolNames: "standard", AgentPermission: "auto", Web: defaultWeb,
				},
				MCPServers: []org.MCPServer{
					{
						Name: "everything", URL: "http://127.0.0.1:3001/mcp", Tools: []string{"echo", "add"},
						Headers:         map[string]string{"Authorization": "Bearer env:GH_TOKEN", "X-Team": "blue"},
						RequireApproval: org.Approval{Mode: org.ApproveRules, Always: &org.ToolFilter{ToolNames: []string{"echo"}}, Never: &org.ToolFilter{ReadOnly: new(true)}}, ApprovalTimeout: 2 * time.Hour,
						Timeout: 5 * time.Second, Required: true, Trust: true,
						Cache: org.Cache{Mode: "names", Names: []string{"search", "echo"}}, Naming: "prefixed", Prefix: "every", Polling: []string{"echo"},
						Reads: []string{"search"}, Keyed: []string{"order", "refund"}, Hosted: []string{"web_search=echo", "code_interpreter=add"}, MaxConcurrentCalls: 3,
					},
					{
						Name: "second", URL: "https://tools.example/mcp", Enabled: true, ApprovalTimeout: 7 * 24 * time.Hour, Timeout: 30 * time.Second, Naming: "bare", MaxRetries: 2, MaxConcurrentCalls: 256,
					},
				},
			},
			{ID: "other", Runtime: defaultRuntime()},
		},
	}
	if diff := cmp.Diff(want, got, same()); diff != "" {
		t.Error(diff)
	}
}

func TestAnEmptyFileHasEveryDefault(t *testing.T) {
	want := &Config{Listen: "127.0.0.1:8080", MaxConnections: 20_000, MaxRequests: 20_000, MaxRetainedRunMiB: 64, MaxRelayBodyMiB: 32,
		MaxSpoolMiB: 1024, MaxFollowersPerRun: 16, Data: "./turnpike-data", Postgres: noPostgres(), Runs: Runs{RetentionDays: 30},
		MinFreeDiskMiB: 256, OrgCaps: defaultCaps, ToolDispatch: noDispatch(), Sandbox: noSandbox(), Outbound: Outbound{allBlocked()},
		Log: Log{"text", "info"}}
	for _, data := range []string{"", "\n# nothing\n", "{}", "---\n"} {
		got, err := Parse("turnpike.yaml", []byte(data), nothing)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, same()); diff != "" {
			t.Errorf("%q: %s", data, diff)
		}
	}
}

func TestJSONIsReadToo(t *testing.T) {
	got, err := Parse("c.json", []byte(`{"listen":"[::1]:80","orgs":[{"id":"a","runtime":{"max_rounds":3},"mcp_servers":[{"name":"x","url":"http://x","tools":"*"}]}]}`), nothing)
	if err != nil {
		t.Fatal(err)
	}
	if got.Listen != "[::1]:80" || *got.Orgs[0].Runtime.MaxRounds != 3 || got.Orgs[0].MCPServers[0].Tools != nil {
		t.Errorf("%+v", got)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.yaml")
	if _, err := Load(path, nothing); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("data: d\nlisten: x\nproviders: [{name: d, kind: demo}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, nothing)
	if want := path + `:2:9: listen: "x" is not host:port, such as 127.0.0.1:8080`; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#", MaxSize+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, nothing); err == nil || !strings.Contains(err.Error(), "is larger than 1048576 bytes") {
		t.Errorf("a file over the limit: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	const file = `providers: [{name: a, api_key: sk-CANARY}]
orgs:
  - id: a
    keys: [{name: k, key: CANARY-key}]
    mcp_servers:
      - {name: s, url: http://s, headers: {Authorization: Bearer CANARY, X-Team: blue, X-Api-Key: "env:K"}}
    runtime: {builtin_tools: [{name: web_scrape}]}
  - {id: b, features: [mcp_outbound], mcp_servers: [{name: s, url: http://s}], runtime: {builtin_tools: [{name: web_scrape}]}}
  - {id: c, features: [has_mcp_outbound], mcp_servers: [{name: s, url: http://s}]}
  - {id: d, runtime: {enable_search: true, web: {search: {provider: duckduckgo}}, builtin_tools: [{name: web_search, max_uses: 3}, {name: http_request, enabled: false}]}}
`
	c, err := Parse("t.yaml", []byte(file), nothing)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"t.yaml:1:32: providers[0].api_key: literal credential; use env:NAME or file:PATH",
		"t.yaml:4:27: orgs[0].keys[0].key: literal credential; use env:NAME or file:PATH",
		"t.yaml:6:59: orgs[0].mcp_servers[0].headers.Authorization: literal credential; use env:NAME or file:PATH",
		"t.yaml:6:7: orgs[0].mcp_servers: not used, because the org does not have the agent loop; add features: [mcp_outbound] to the org",
		"t.yaml:7:30: orgs[0].runtime.builtin_tools: not used, because the org does not have the agent loop; add features: [mcp_outbound] to the org",
	}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Error(diff)
	}
}

// A model, tool or matcher of an agent that stands for nothing is a warning, because a misspelt matcher removes the hook.
// What an MCP server may have is not warned of.
func TestWarningsOfAgents(t *testing.T) {
	const file = `providers: [{name: demo, kind: demo, models: [demo]}]
mcp_servers: [{name: shared, url: http://s, orgs: [c]}]
orgs:
  - id: a
    agents:
      - name: clerk
        model: dmo
        tools: [{name: storage_write}, {name: storage_raed}, {name: status}]
        hooks:
          - {event: PreToolUse, type: approval, matcher: storage_wrte}
          - {event: PreToolUse, type: approval, matcher: storage_wrte, enabled: false}
          - {event: PreToolUse, type: approval, matcher: "storage_*"}
          - {event: PreToolUse, type: approval, matcher: pay}
  - id: c
    features: [mcp_outbound]
    http_tools: [{name: pay, description: d, url: "http://p"}]
    agents:
      - name: clerk
        model: demo
        tools: [{name: storage_write}]
        hooks:
          - {event: PreToolUse, type: approval, matcher: storage_wrte}
          - {event: PreToolUse, type: approval, matcher: pay}
          - {event: PreToolUse, type: approval, matcher: refund}
`
	c, err := Parse("t.yaml", []byte(file), nothing)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`t.yaml:7:16: orgs[0].agents[0].model: no provider of this gateway serves the model "dmo"` +
			`, so runs of the agent are refused until one does; GET /v1/models lists all names`,
		`t.yaml:8:47: orgs[0].agents[0].tools[1].name: "storage_raed" is not a built-in tool` +
			`; runs of the agent are refused unless the org has a custom tool of that name` +
			`; did you mean the built-in tool storage_read?`,
		`t.yaml:10:58: orgs[0].agents[0].hooks[0].matcher: matcher "storage_wrte" matches no tool of the agent` +
			`, so the hook runs for no call; did you mean storage_write?`,
		`t.yaml:13:58: orgs[0].agents[0].hooks[3].matcher: matcher "pay" matches no tool of the agent` +
			`, so the hook runs for no call; use a name or glob of a tool as the model or its server calls it`,
		`t.yaml:22:58: orgs[1].agents[0].hooks[0].matcher: matcher "storage_wrte" matches no known tool of the agent` +
			`; the tools of these are not known: shared; did you mean storage_write?`,
	}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Error(diff)
	}
}

// noDispatch is what a configuration has without a tool dispatch URL.
func noDispatch() ToolDispatch { return ToolDispatch{Timeout: 30 * time.Second, Tools: []string{"*"}} }

var defaultCaps = org.Caps{Keys: 1000, MCPServers: 100, Secrets: 1000, Webhooks: 10, Agents: 100, Tools: 200, Sessions: 10_000, Deliveries: 10_000, Approvals: 10_000, Handovers: 10_000, Responses: 100_000, Files: 10_000, FileBytes: 1024 << 20, Stored: 10_240 << 20}

// noSandbox is what a configuration has without a sandbox.
func noSandbox() Sandbox { return Sandbox{MaxSessions: 16, MaxSessionsPerOrg: 4} }
