package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func variablesOf(vars map[string]string) Environment {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// One switch for each class of address, in each spelling. K03. // K02
func TestTheEnvironmentWinsOverTheFile(t *testing.T) {
	const ssrf = "TURNPIKE_OUTBOUND_SSRF_"
	nets := func(all ...string) []netip.Prefix {
		var ps []netip.Prefix
		for _, s := range all {
			ps = append(ps, netip.MustParsePrefix(s))
		}
		return ps
	}
	for _, c := range []struct {
		name, value string
		field       func(*Config) any
		want        any
	}{
		{"TURNPIKE_LISTEN", "0.0.0.0:1", func(c *Config) any { return c.Listen }, "0.0.0.0:1"},
		{"TURNPIKE_DATA", "/d", func(c *Config) any { return c.Data }, "/d"},
		{"TURNPIKE_DATABASE_URL", "", func(c *Config) any { return c.Database.IsZero() }, true},
		{"TURNPIKE_REDIS_URL", "", func(c *Config) any { return c.Redis.IsZero() }, true},
		{"TURNPIKE_CLICKHOUSE_URL", "", func(c *Config) any { return c.ClickHouse.IsZero() }, true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", func(c *Config) any { return c.Telemetry.OTLPEndpoint }, "http://collector:4318"},
		{"TURNPIKE_METRICS_LISTEN", "127.0.0.1:0", func(c *Config) any { return c.Telemetry.MetricsListen }, "127.0.0.1:0"},
		{"TURNPIKE_TELEMETRY_CONTENT", "true", func(c *Config) any { return c.Telemetry.Content }, true},
		{"TURNPIKE_MAX_ROUNDS_CAP", "7", func(c *Config) any { return c.MaxRoundsCap }, 7},
		{"TURNPIKE_ORG_CAPS_KEYS", "7", func(c *Config) any { return c.OrgCaps.Keys }, 7},
		{"TURNPIKE_ORG_CAPS_MCP_SERVERS", "7", func(c *Config) any { return c.OrgCaps.MCPServers }, 7},
		{"TURNPIKE_ORG_CAPS_SECRETS", "7", func(c *Config) any { return c.OrgCaps.Secrets }, 7},
		{"TURNPIKE_ORG_CAPS_RESPONSES", "7", func(c *Config) any { return c.OrgCaps.Responses }, 7},
		{"TURNPIKE_ORG_CAPS_HANDOVERS", "7", func(c *Config) any { return c.OrgCaps.Handovers }, 7},
		{"TURNPIKE_ORG_CAPS_STORED_MIB", "7", func(c *Config) any { return c.OrgCaps.Stored }, int64(7 << 20)},
		{ssrf + "BLOCK_LOOPBACK", "false", func(c *Config) any { return c.Outbound.SSRF.BlockLoopback }, false},
		{ssrf + "BLOCK_PRIVATE", "0", func(c *Config) any { return c.Outbound.SSRF.BlockPrivate }, false},
		{ssrf + "BLOCK_LINK_LOCAL", "FALSE", func(c *Config) any { return c.Outbound.SSRF.BlockLinkLocal }, false},
		{ssrf + "BLOCK_MULTICAST", "false", func(c *Config) any { return c.Outbound.SSRF.BlockMulticast }, false},
		{ssrf + "BLOCK_CGNAT", "1", func(c *Config) any { return c.Outbound.SSRF.BlockCGNAT }, true},
		{ssrf + "BLOCK_ULA_V6", "false", func(c *Config) any { return c.Outbound.SSRF.BlockULAV6 }, false},
		{ssrf + "EXTRA_BLOCKED_CIDRS", "10.1.0.0/16, ::1/128", func(c *Config) any { return c.Outbound.SSRF.ExtraBlockedCIDRs }, nets("10.1.0.0/16", "::1/128")},
		{ssrf + "ALLOWLIST_CIDRS", "", func(c *Config) any { return c.Outbound.SSRF.AllowlistCIDRs }, nets()},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse("t.yaml", []byte(example), variablesOf(map[string]string{c.name: c.value, "OTHER": "x"}))
			if c.name == "TURNPIKE_MAX_ROUNDS_CAP" { // B02: the file asks for ten
				if err == nil || err.Error() != "t.yaml:22:27: orgs[0].runtime.max_rounds: 10 is above max_rounds_cap (7)" {
					t.Errorf("%v", err)
				}
				got, err = Parse("t.yaml", nil, variablesOf(map[string]string{c.name: c.value}))
			}
			if err != nil {
				t.Fatal(err)
			}
			if found := c.field(got); !reflect.DeepEqual(found, c.want) {
				t.Errorf("got %v, want %v", found, c.want)
			}
		})
	}
}

func TestABadVariableIsNamed(t *testing.T) {
	for name, c := range map[string]struct{ name, value, want string }{
		"a boolean in words":    {"TURNPIKE_OUTBOUND_SSRF_BLOCK_PRIVATE", "off", `outbound.ssrf.block_private: "off" is not allowed; want true, false, 1 or 0`},
		"an empty boolean":      {"TURNPIKE_OUTBOUND_SSRF_BLOCK_PRIVATE", "", `outbound.ssrf.block_private: "" is not allowed; want true, false, 1 or 0`},
		"a number out of range": {"TURNPIKE_MAX_ROUNDS_CAP", "0", "max_rounds_cap: 0 is out of range (1..256)"},
		"a network that is none": {"TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS", "10.0.0.0/8,,x",
			`outbound.ssrf.allowlist_cidrs: "" is not a CIDR such as 10.0.0.0/8`},
		"what is not built": {"TURNPIKE_REDIS_URL", "redis://u:CANARY@h/d",
			`redis: a value other than the default is not built yet in this version; leave it out or set it to ""`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("t.yaml", nil, variablesOf(map[string]string{c.name: c.value}))
			if err == nil || err.Error() != c.name+": "+c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWithoutAFile(t *testing.T) {
	c, has, err := Default(variablesOf(map[string]string{"OPENAI_API_KEY": "CANARY", "OPENAI_BASE_URL": "http://localhost:1234/v1/", "TURNPIKE_LISTEN": "127.0.0.1:1"}))
	if err != nil || !has {
		t.Fatal(has, err)
	}
	want := &Config{
		Listen: "127.0.0.1:1", MaxConnections: 20_000, MaxRequests: 20_000, MaxRetainedRunMiB: 64, MaxRelayBodyMiB: 32, MaxSpoolMiB: 1024,
		MaxFollowersPerRun: 16, Postgres: noPostgres(), Data: "./turnpike-data", Runs: Runs{RetentionDays: 30}, MinFreeDiskMiB: 256,
		OrgCaps: defaultCaps, ToolDispatch: noDispatch(), Sandbox: noSandbox(), Outbound: Outbound{allBlocked()}, Log: Log{"text", "info"},
		Providers: []Provider{{Name: "openai", Kind: "openai", BaseURL: "http://localhost:1234/v1", APIKey: mustText(t, "env:OPENAI_API_KEY"), Models: []string{"*"}}},
		Orgs:      []Org{{ID: "default", Features: []string{MCPOutbound}, Runtime: defaultRuntime()}},
	}
	if diff := cmp.Diff(want, c, same()); diff != "" {
		t.Error(diff)
	}

	c, has, err = Default(nothing)
	if err != nil || has || len(c.Providers) != 0 || len(c.Orgs) != 1 {
		t.Errorf("an empty environment: %+v %v %v", c, has, err)
	}
	c, _, err = Default(variablesOf(map[string]string{"OPENAI_API_KEY": "k"}))
	if err != nil || c.Providers[0].BaseURL != "https://api.openai.com/v1" {
		t.Errorf("the usual address: %+v %v", c, err)
	}
	_, _, err = Default(variablesOf(map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "x"}))
	if err == nil || err.Error() != `OPENAI_BASE_URL: providers[0].base_url: "x" is not an http:// or https:// URL` {
		t.Errorf("%v", err)
	}
}

func TestKeysOfSeveralProvidersWithoutAFile(t *testing.T) {
	both := map[string]string{"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/"}
	c, _, err := Default(variablesOf(both))
	if err != nil {
		t.Fatal(err)
	}
	want := []Provider{
		{Name: "openai", Kind: "openai", BaseURL: "https://api.openai.com/v1", APIKey: mustText(t, "env:OPENAI_API_KEY"), Models: []string{"gpt-*", "o*"}},
		{Name: "anthropic", Kind: "anthropic", BaseURL: "http://127.0.0.1:9", APIKey: mustText(t, "env:ANTHROPIC_API_KEY"), Models: []string{"claude-*"}},
	}
	if diff := cmp.Diff(want, c.Providers, same()); diff != "" {
		t.Error(diff)
	}
	c, has, err := Default(variablesOf(map[string]string{"ANTHROPIC_API_KEY": "b"}))
	want = []Provider{{Name: "anthropic", Kind: "anthropic", BaseURL: "https://api.anthropic.com", APIKey: mustText(t, "env:ANTHROPIC_API_KEY"), Models: []string{"*"}}}
	if diff := cmp.Diff(want, c.Providers, same()); diff != "" || !has || err != nil {
		t.Error(has, err, diff)
	}
	c, has, err = Default(variablesOf(map[string]string{"GEMINI_API_KEY": "g"}))
	want = []Provider{{Name: "gemini", Kind: "gemini", BaseURL: "https://generativelanguage.googleapis.com", APIKey: mustText(t, "env:GEMINI_API_KEY"), Models: []string{"*"}}}
	if diff := cmp.Diff(want, c.Providers, same()); diff != "" || !has || err != nil {
		t.Error(has, err, diff)
	}
	c, _, err = Default(variablesOf(map[string]string{"OPENAI_API_KEY": "a", "GEMINI_API_KEY": "g", "GEMINI_BASE_URL": "http://127.0.0.1:9/"}))
	if err != nil || len(c.Providers) != 2 || c.Providers[1].BaseURL != "http://127.0.0.1:9" || c.Providers[1].Models[0] != "gemini-*" {
		t.Errorf("%+v %v", c, err)
	}
	both["ANTHROPIC_BASE_URL"] = "x"
	_, _, err = Default(variablesOf(both))
	if err == nil || err.Error() != `ANTHROPIC_BASE_URL: providers[1].base_url: "x" is not an http:// or https:// URL` {
		t.Error(err)
	}
}

// AWS's variables are on many machines: only a variable of ours makes a provider of them.
func TestBedrockWithoutAFile(t *testing.T) { // M04
	aws := func(more ...string) Environment {
		env := map[string]string{"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "p"}
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		return variablesOf(env)
	}
	for _, off := range []string{"", "false", "0"} {
		if c, has, err := Default(aws("TURNPIKE_BEDROCK", off)); err != nil || has {
			t.Errorf("%q: %+v, %v", off, c.Providers, err)
		}
	}
	alone := Provider{Name: "bedrock", Kind: "bedrock", Region: "eu-west-1", BaseURL: "https://bedrock-runtime.eu-west-1.amazonaws.com", Models: []string{"*"}}
	for _, on := range []string{"true", "1"} {
		c, has, err := Default(aws("TURNPIKE_BEDROCK", on))
		if diff := cmp.Diff([]Provider{alone}, c.Providers, same()); diff != "" || !has || err != nil {
			t.Error(err, diff)
		}
	}
	c, _, err := Default(aws("TURNPIKE_BEDROCK", "true", "OPENAI_API_KEY", "k"))
	if err != nil || len(c.Providers) != 2 || !slices.Equal(c.Providers[0].Models, []string{"gpt-*", "o*"}) || !slices.Contains(c.Providers[1].Models, "*.anthropic.*") || slices.Contains(c.Providers[1].Models, "*") {
		t.Errorf("%+v, %v", c, err)
	}
	for want, env := range map[string]Environment{
		`AWS_REGION: providers[0].region: is empty; TURNPIKE_BEDROCK needs the AWS region`: aws("TURNPIKE_BEDROCK", "true", "AWS_REGION", ""),
		`TURNPIKE_BEDROCK: "yes" is not allowed; want true or false`:                       aws("TURNPIKE_BEDROCK", "yes"),
	} {
		if _, _, err := Default(env); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestResolve(t *testing.T) {
	secretFile := filepath.Join(t.TempDir(), "ci")
	if err := os.WriteFile(secretFile, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := strings.ReplaceAll(example, "/run/secrets/ci", secretFile)
	file = strings.Replace(file, "enabled: false", "enabled: true", 1)
	c, err := Parse("t.yaml", []byte(file), nothing)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"OPENAI_API_KEY": "sk", "TURNPIKE_KEY": "tp", "GH_TOKEN": "gh"}
	s, err := c.Resolve(t.Context(), secret.NewResolver(variablesOf(env)))
	if err != nil {
		t.Fatal(err)
	}
	if s.Providers["openai"].Reveal() != "sk" || s.Keys["default"]["dev"].Reveal() != "tp" || s.Keys["default"]["ci"].Reveal() != "from-file" {
		t.Error("a credential is missing")
	}
	if _, has := s.Providers["toy"]; has {
		t.Error("a provider without a key has one")
	}

	_, err = c.Resolve(t.Context(), secret.NewResolver(nothing))
	const want = `t.yaml:10:14: providers[0].api_key: environment variable OPENAI_API_KEY is not set; set it where turnpike starts
t.yaml:19:26: orgs[0].keys[0].key: environment variable TURNPIKE_KEY is not set; set it where turnpike starts
t.yaml:28:34: orgs[0].mcp_servers[0].headers.Authorization: environment variable GH_TOKEN is not set; set it where turnpike starts`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}

	env["TURNPIKE_KEY"] = "from-file"
	_, err = c.Resolve(t.Context(), secret.NewResolver(variablesOf(env)))
	if err == nil || err.Error() != "t.yaml:21:14: orgs[0].keys[1].key: is the same as orgs[0].keys[0].key; a key belongs to one caller" {
		t.Errorf("two references to one key: %v", err)
	}
}

func TestResolveSkipsServersThatAreOff(t *testing.T) {
	c, err := Parse("t.yaml", []byte("orgs: [{id: a, mcp_servers: [{name: s, url: http://a, enabled: false, headers: {X: 'env:NOPE'}}]}]"), nothing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resolve(t.Context(), secret.NewResolver(nothing)); err != nil {
		t.Error(err)
	}
}
