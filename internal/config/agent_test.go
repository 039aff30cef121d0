package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const wholeAgent = `master_key: env:MASTER
orgs:
  - id: a
    agents:
      - name: helper
        description: Helps.
        model: fast
        system_prompt: |
          Be brief.
          Be kind.
        settings: {temperature: 0.5, max_steps: 7, max_tokens: 100, max_context_tokens: 2000, timeout_seconds: 60, fallback_model: slow, reasoning_effort: low}
        tools:
          - name: status
            config_override: {rules: [{condition: id STARTS_WITH internal-, message: no}]}
          - {name: database_query, config_override: {schemas: {public: [orders, customers], stock: []}}}
        mcp_servers:
          - {name: shop, url: "https://shop.example/mcp", headers: {Authorization: "Bearer env:SHOP"}, config: {trust: true, tools: [search]}}
          - {name: off, url: "https://off.example/mcp", transport: http, enabled: false, config: {naming: bare}}
        hooks:
          - {event: PreToolUse, type: rule, matcher: "pay_*", config: {condition: a CONTAINS x, message: no x}}
          - {event: OnRunStart, type: rule, position: 2, config: {rules: [{condition: input CONTAINS x}]}}
          - {event: PreResponse, type: http, enabled: false, config: {url: "https://hooks.example", headers: {X-Shop: north}, secret: "secret:whsec", timeout_seconds: 3, on_error: deny, include_run_context: true}}
          - {event: PreToolUse, type: approval, config: {message: sure?, timeout: 30}}
`

// An agent of the file has every member that one of the API has. // N01
func TestAnAgentOfTheFile(t *testing.T) {
	c, err := Parse("t.yaml", []byte(wholeAgent), nothing)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Orgs[0].Agents[0].Definition()
	if len(got.Servers) != 2 {
		t.Fatalf("servers: %+v", got.Servers)
	}
	shop, off := got.Servers[0].Settings, got.Servers[1].Settings
	if shop.Naming != "namespaced" || !shop.Trust || !shop.Enabled || shop.Headers["Authorization"] != "Bearer env:SHOP" || off.Naming != "bare" || off.Enabled || off.MaxRetries != 2 {
		t.Errorf("settings of the servers: %+v and %+v", shop, off)
	}
	got.Servers[0].Settings, got.Servers[1].Settings = org.MCPServer{}, org.MCPServer{}
	want := agent.Definition{
		Name: "helper", Description: "Helps.", Model: "fast", SystemPrompt: "Be brief.\nBe kind.\n",
		Settings: agent.Settings{Temperature: new(0.5), MaxSteps: new(7), MaxTokens: new(100), MaxContextTokens: new(2000), TimeoutSeconds: new(60), FallbackModel: "slow", ReasoningEffort: "low"},
		Servers:  []agent.Server{{ID: "shop", Name: "shop"}, {ID: "off", Name: "off"}},
		Tools: []agent.Assignment{
			{ID: "status", Type: agent.CustomTool, Name: "status", Rules: []agent.HookRule{{Condition: "id STARTS_WITH internal-", Message: "no"}}},
			{ID: "database_query", Type: agent.BuiltinTool, Name: "database_query", Schemas: map[string][]string{"public": {"orders", "customers"}, "stock": {}}},
		},
		Hooks: []agent.Hook{
			{ID: "agent:0", Event: agent.PreToolUse, Matcher: "pay_*", Enabled: true, Rules: []agent.HookRule{{Condition: "a CONTAINS x", Message: "no x"}}},
			{ID: "agent:1", Event: agent.OnRunStart, Enabled: true, Position: 2, Rules: []agent.HookRule{{Condition: "input CONTAINS x"}}},
			{ID: "agent:2", Event: agent.PreResponse, HTTP: &agent.HTTPHook{URL: "https://hooks.example", Headers: map[string]string{"X-Shop": "north"}, Secret: "secret:whsec", TimeoutSeconds: 3, OnError: "deny", IncludeRunContext: true}},
			{ID: "agent:3", Event: agent.PreToolUse, Enabled: true, Approval: &agent.ApprovalHook{Message: "sure?", TimeoutSeconds: 30}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	shown, err := json.Marshal(c.Shown())
	if err != nil || strings.Contains(string(shown), "Be kind") {
		t.Errorf("the settings as they are logged: %s, %v", shown, err)
	}
	other, err := Parse("t.yaml", []byte(strings.NewReplacer("max_steps: 7", "max_steps: 8", "no x", "no y").Replace(wholeAgent)), nothing)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, change := range Changes(c, other) {
		paths = append(paths, change.Path)
		if !change.Live {
			t.Errorf("%s needs a restart", change.Path)
		}
	}
	if got := strings.Join(paths, " "); got != "orgs[a].agents[helper].settings.max_steps orgs[a].agents[helper].hooks" {
		t.Errorf("changes: %s", got)
	}
}

// The file refuses what the API refuses, with its words. // N01
func TestAgentsThatTheFileRefuses(t *testing.T) {
	for agents, want := range map[string]string{
		`{name: a}`:                                          "orgs[0].agents[0].model: is missing; want model name",
		`{name: "", model: m}`:                               `orgs[0].agents[0].name: "" is not a name; want ^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`,
		`{name: agent_x, model: m}`:                          `orgs[0].agents[0].name: "agent_x" begins like the id of an agent that was created over the API; choose another name`,
		`{name: runs, model: m}`:                             `orgs[0].agents[0].name: "runs" is a part of the API's paths; choose another name`,
		`{name: a, model: m}, {name: a, model: m}`:           `orgs[0].agents[1].name: "a" is already used by orgs[0].agents[0].name`,
		`{name: a, model: "a b"}`:                            "orgs[0].agents[0].model: must be the name of a model: 1 to 256 bytes, without spaces",
		`{name: a, model: m, settings: {max_steps: 51}}`:     "orgs[0].agents[0].settings.max_steps: must be a whole number from 1 to 50",
		`{name: a, model: m, settings: {temperature: 3}}`:    "orgs[0].agents[0].settings.temperature: must be from 0 to 2",
		`{name: a, model: m, settings: {steps: 3}}`:          "orgs[0].agents[0].settings.steps: unknown key",
		`{name: a, model: m, tools: [{name: t}, {name: t}]}`: `orgs[0].agents[0].tools[1].name: "t" is already used by tools[0]`,
		`{name: a, model: m, tools: [{name: database_query, config_override: {schemas: {pg_catalog: []}}}]}`:                                   "orgs[0].agents[0].tools[0].config_override.schemas.pg_catalog: is a schema of the database system, which agents cannot use",
		`{name: a, model: m, tools: [{name: database_query, config_override: {schemas: {shop: ["a b"]}}}]}`:                                    `orgs[0].agents[0].tools[0].config_override.schemas.shop[0]: "a b" is not the name of a table`,
		`{name: a, model: m, tools: [{name: database_query, config_override: {schemas: {shop: orders}}}]}`:                                     `orgs[0].agents[0].tools[0].config_override.schemas.shop: found`,
		`{name: a, model: m, tools: [{name: database_query, config_override: {schemas: [shop]}}]}`:                                             `orgs[0].agents[0].tools[0].config_override.schemas: found`,
		`{name: a, model: m, tools: [{name: web_search, config_override: {schemas: {shop: [orders]}}}]}`:                                       "orgs[0].agents[0].tools[0].config_override.schemas: is for database_query and database_write; other tools have none",
		`{name: a, model: m, mcp_servers: [{name: s}]}`:                                                                                        "orgs[0].agents[0].mcp_servers[0].url: is missing",
		`{name: a, model: m, mcp_servers: [{name: s, url: "https://s", transport: sse}]}`:                                                      `orgs[0].agents[0].mcp_servers[0].transport: "sse" is not allowed; want http`,
		`{name: a, model: m, mcp_servers: [{name: s, url: "https://s", config: {command: [x]}}]}`:                                              "orgs[0].agents[0].mcp_servers[0].config.command: unknown key",
		`{name: a, model: m, mcp_servers: [{name: s, url: "https://s", config: {prefix: x}}]}`:                                                 "orgs[0].agents[0].mcp_servers[0].config.prefix: is only for naming: prefixed",
		`{name: a, model: m, mcp_servers: [{name: s, url: "https://s"}, {name: s, url: "https://s"}]}`:                                         `orgs[0].agents[0].mcp_servers[1].name: "s" is already used by mcp_servers[0]`,
		`{name: a, model: m, mcp_servers: [{name: s, url: "https://s", headers: {Authorization: canary}}]}`:                                    "orgs[0].agents[0].mcp_servers[0].headers.Authorization: contains a credential; refer to it with env:NAME, file:PATH or secret:NAME",
		`{name: a, model: m, mcp_servers: [{name: s, url: "https://s?api_key=canary"}]}`:                                                       `orgs[0].agents[0].mcp_servers[0].url: the URL parameter "api_key" looks like a credential; send it in a header with env:NAME, file:PATH or secret:NAME`,
		`{name: a, model: m, hooks: [{event: OnDelegation, type: rule}]}`:                                                                      "orgs[0].agents[0].hooks[0].event: OnDelegation is not available in this version",
		`{name: a, model: m, hooks: [{event: OnRunStart, type: script}]}`:                                                                      "orgs[0].agents[0].hooks[0].type: must be one of http, rule, approval",
		`{name: a, model: m, hooks: [{event: OnRunStart, type: rule, config: {condition: a CONTAIN x}}]}`:                                      "orgs[0].agents[0].hooks[0].config.condition: \"CONTAIN\" is not an operator",
		`{name: a, model: m, hooks: [{event: OnRunStart, type: rule, config: {condition: a CONTAINS x, url: "https://x"}}]}`:                   "orgs[0].agents[0].hooks[0].config.url: is not for the type rule; remove it",
		`{name: a, model: m, hooks: [{event: OnRunStart, type: http, config: {url: "https://x", timeout_seconds: 31}}]}`:                       "orgs[0].agents[0].hooks[0].config.timeout_seconds: must be a whole number from 1 to 30",
		`{name: a, model: m, hooks: [{event: OnRunStart, type: http, config: {url: "https://x", timeout_seconds: 0}}]}`:                        "orgs[0].agents[0].hooks[0].config.timeout_seconds: must be a whole number of seconds, at least 1",
		`{name: a, model: m, hooks: [{event: OnRunStart, type: http, config: {url: "https://x", headers: {X-Key: "env:CANARY"}}}]}`:            "orgs[0].agents[0].hooks[0].config.headers.X-Key: a header of a hook cannot refer to the gateway's environment or files",
		`{name: a, model: m, hooks: [{event: PreToolUse, type: rule, config: {condition: a CONTAINS x, rules: [{condition: b CONTAINS x}]}}]}`: "orgs[0].agents[0].hooks[0].config.condition: cannot be combined with rules",
	} {
		_, err := Parse("t.yaml", []byte("orgs: [{id: a, agents: ["+agents+"]}]"), nothing)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n gives %v\n want %s", agents, err, want)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error shows the credential: %v", agents, err)
		}
	}
}
