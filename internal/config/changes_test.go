package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parsed(t *testing.T, file string) *Config {
	t.Helper()
	c, err := Parse("t.yaml", []byte(file), nothing)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChangesNamesEveryDifference(t *testing.T) {
	const old = `
log: {level: info}
operator_key: CANARY-1
providers: [{name: a, base_url: "http://a/v1?key=CANARY"}, {name: b}, {name: gone}]
orgs:
  - {id: deleted}
  - id: acme
    keys: [{name: dev, key: "env:OLD"}]
    mcp_servers:
      - {name: s, url: "http://s", timeout: 30s, headers: {Authorization: "Bearer CANARY"}, tools: [x]}
      - {name: program, command: [run, CANARY]}
`
	const new = `
log: {level: debug, format: json}
operator_key: CANARY-2
providers: [{name: b}, {name: a, base_url: "http://a/v1?key=CANARY-2"}]
orgs:
  - id: acme
    runtime: {max_rounds: 7}
    keys: [{name: dev, key: "env:NEW"}, {name: ci, key: "env:CI"}]
    mcp_servers:
      - {name: s, url: "http://s", timeout: 1m, headers: {Authorization: "Bearer secret:S"}, cache: all}
      - {name: program, command: [run, CANARY, CANARY]}
master_key: env:M
outbound: {ssrf: {allowlist_cidrs: [10.0.0.0/8]}}
`
	var got []string
	for _, c := range Changes(parsed(t, old), parsed(t, new)) {
		line := c.Path + ": " + c.Old + " -> " + c.New
		if !c.Live {
			line += " (restart)"
		}
		got = append(got, line)
	}
	want := []string{
		`operator_key: [redacted] -> [redacted] (restart)`,
		`master_key: "" -> env:M (restart)`,
		`providers[a].base_url: http://a/v1?[redacted] -> http://a/v1?[redacted]`,
		`providers[gone]: present -> absent`,
		`providers: [a, b] -> [b, a]`,
		`outbound.ssrf.allowlist_cidrs: [] -> [10.0.0.0/8]`,
		`log.format: text -> json (restart)`,
		`log.level: info -> debug`,
		`orgs[deleted]: present -> absent`,
		`orgs[acme].keys[dev].key: env:OLD -> env:NEW`,
		`orgs[acme].keys[ci]: absent -> present`,
		`orgs[acme].runtime: absent -> present`,
		`orgs[acme].runtime.max_rounds: unset -> 7`,
		`orgs[acme].mcp_servers[s].tools: [x] -> *`,
		`orgs[acme].mcp_servers[s].headers: {Authorization: [redacted]} -> {Authorization: [redacted] secret:S}`,
		`orgs[acme].mcp_servers[s].timeout: 30s -> 1m`,
		`orgs[acme].mcp_servers[s].cache: read_only -> all`,
		`orgs[acme].mcp_servers[program].command: [run, 1 arguments] -> [run, 2 arguments]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(strings.Join(got, ""), "CANARY") {
		t.Error("a credential is shown")
	}
}

// A file that is written differently but means the same has no changes.
func TestChangesComparesValues(t *testing.T) {
	a := parsed(t, example)
	if got := Changes(a, parsed(t, example)); got != nil {
		t.Errorf("the same file: %v", got)
	}
	if got := Changes(parsed(t, "log: {level: info}\norgs: [{id: a, mcp_servers: [{name: s, url: 'http://s', tools: '*', headers: {x-a: b}}]}]"),
		parsed(t, "orgs: [{id: a, mcp_servers: [{name: s, url: 'http://s', timeout: 30000ms, headers: {X-A: b}}]}]")); got != nil {
		t.Errorf("a file that means the same: %v", got)
	}
}

// The keys that can be changed while the gateway serves, and no others.
func TestKeyDocsSayWhatNeedsARestart(t *testing.T) {
	live := []string{"log.level", "mcp_servers", "orgs", "providers", "routes", "runs.retention_days", "org_caps", "max_rounds_cap", "min_free_disk_mib", "max_followers_per_run", "outbound.ssrf", "rates", "models", "compaction", "tool_dispatch_url", "tool_dispatch_secret", "tool_dispatch_timeout", "tool_dispatch_tools", "public_url"}
	for _, k := range Keys() {
		want := false
		for _, path := range live {
			want = want || k.Path == path || strings.HasPrefix(k.Path, path+".") || strings.HasPrefix(k.Path, path+"[].")
		}
		if k.Live != want {
			t.Errorf("%s: live = %v, want %v", k.Path, k.Live, want)
		}
	}
}
