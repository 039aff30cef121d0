package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Agent is an agent of an org. Its members are those of /api/agents.
type Agent struct {
	Name         string // also its id
	Description  string
	Model        string
	SystemPrompt string
	Settings     agent.Settings
	Tools        []AgentTool
	Servers      []AgentServer
	Hooks        []AgentHook
}

// AgentTool is a tool of an agent.
type AgentTool struct {
	Name    string
	Rules   []org.HookRule
	Schemas map[string][]string // as in [agent.Assignment]
}

// AgentServer is an MCP server of an agent.
type AgentServer struct {
	Name      string
	Transport string // always http
	Settings  org.MCPServer
}

// AgentHook is a hook of an agent. The fields of Config that its type does not have are empty.
type AgentHook struct {
	Event    string
	Type     string
	Matcher  string
	Disabled bool
	Position int
	Config   AgentHookConfig
}

// AgentHookConfig are the settings of the types of hooks.
type AgentHookConfig struct {
	Condition string
	Message   string
	Rules     []org.HookRule

	URL            string
	Headers        map[string]string
	Secret         string
	TimeoutSeconds int
	OnError        string
	Context        bool

	Timeout int // of an approval, in seconds
}

// serversOfAgents are settings of MCP servers that are members beside config, and those that agents do not have.
func serversOfAgents() []string {
	return []string{"name", "url", "enabled", "headers", "hosted", "command", "env"}
}

func (a *Agent) keys() []key {
	return []key{
		{name: "name", value: text(&a.Name, "", "name", checkAgentName), required: true, doc: "Name of the agent, unique in the org. It is also its id: POST /api/agents/NAME/run/stream runs it."},
		{name: "description", value: text(&a.Description, "", "text", freeText), doc: "What the agent is for: at most 1,000 characters."},
		{name: "model", value: text(&a.Model, "", "model name", freeText), required: true, doc: "Model of the agent, as a request names it."},
		{name: "system_prompt", value: hidden(text(&a.SystemPrompt, "", "text", freeText)), doc: "Instructions for the model: at most 64 KiB."},
		{name: "settings", value: object{agentSettingsKeys(&a.Settings)}, doc: "How the agent runs."},
		{name: "tools", value: objects[AgentTool]{&a.Tools, agentToolKeys}, doc: "Built-in tools, and custom tools of the org, which are created over /api/tools. At most 64."},
		{name: "mcp_servers", value: objects[AgentServer]{&a.Servers, agentServerKeys}, doc: "MCP servers of the agent, beside those of the org. At most 16."},
		{name: "hooks", value: agentHooks{objects[AgentHook]{&a.Hooks, agentHookKeys}}, doc: "What happens at points of its runs, after the hooks of the org. At most 32."},
	}
}

func agentSettingsKeys(s *agent.Settings) []key {
	return []key{
		{name: "temperature", value: maybeDecimal(&s.Temperature, "number (0..2)").or("the model's own"), doc: "Temperature of model calls."},
		{name: "max_steps", value: checkedLater(maybeInteger(&s.MaxSteps, 1, agent.MaxSteps)).or("AGENT_MAX_STEPS of the org, else 25"), doc: "Maximum rounds of a run. The last one has no tools."},
		{name: "max_tokens", value: checkedLater(maybeInteger(&s.MaxTokens, 1, 1_000_000)).or("the model's own"), doc: "Maximum output tokens of one model call."},
		{name: "max_context_tokens", value: checkedLater(maybeInteger(&s.MaxContextTokens, 1_000, 256_000)).or("the model's window"), doc: "Tokens that a prompt may have before it is shortened."},
		{name: "timeout_seconds", value: checkedLater(maybeInteger(&s.TimeoutSeconds, 1, 86_400)).or("AGENT_TIMEOUT_SECONDS of the org, else its deadline"), doc: "Maximum active time of a run."},
		{name: "fallback_model", value: text(&s.FallbackModel, "", "model name", freeText), doc: "Model that is called after a rate limit or a failure of the first one. Empty: none."},
		{name: "reasoning_effort", value: text(&s.ReasoningEffort, "", either(agent.ReasoningEfforts()), freeText).or("the model's own"), doc: "How much the model reasons."},
	}
}

func agentToolKeys(t *AgentTool) []key {
	return []key{
		{name: "name", value: text(&t.Name, "", "function name", checkFunction), required: true, doc: "Name of the tool. A custom tool is looked up when a run begins."},
		{name: "config_override", value: object{agentOverrideKeys(t)}, doc: "What the agent says of the tool."},
	}
}

func agentOverrideKeys(t *AgentTool) []key {
	return []key{
		{name: "rules", value: hookRules{objects[org.HookRule]{&t.Rules, hookRuleKeys}}, doc: "Conditions on the arguments: the first that holds denies the call, before the hooks of the agent."},
		{name: "schemas", value: schemas{&t.Schemas}, doc: "Only for database_query and database_write: the schemas that the agent may use, and which of their tables, such as {shop: [orders]}. No tables: all of the schema. Empty: all that the org may use."},
	}
}

// agentServerKeys are those of an MCP server, with the members of /api/agents/{id}/mcp-servers.
func agentServerKeys(s *AgentServer) []key {
	settings := serverKeys(&s.Settings)
	of := func(name string) key { k, _ := find(settings, name); return k }
	address := of("url")
	address.required, address.doc = true, "URL of the server."
	inside := slices.DeleteFunc(slices.Clone(settings), func(k key) bool { return slices.Contains(serversOfAgents(), k.name) })
	for i := range inside {
		if inside[i].name == "naming" {
			inside[i].value = word(&s.Settings.Naming, "namespaced", "bare", "namespaced", "prefixed")
		}
	}
	return []key{
		{name: "name", value: text(&s.Name, "", "name", checkID), required: true, doc: "Name of the server, unique in the agent."},
		address,
		{name: "transport", value: word(&s.Transport, "http", "http"), doc: "http: JSON-RPC over HTTP."},
		{name: "headers", value: of("headers").value, doc: `Headers of every request. A credential is a reference, such as {Authorization: "Bearer env:TOKEN"} or {Authorization: "Bearer secret:NAME"}.`},
		of("enabled"),
		{name: "config", value: object{inside}, doc: "The other settings of MCP servers, as in mcp_servers of the org. Only naming has another default."},
	}
}

func agentHookKeys(h *AgentHook) []key {
	return []key{
		{name: "event", value: text(&h.Event, "", "OnRunStart, PreToolUse, PostToolUse, PreResponse or OnRunComplete", freeText), required: true,
			doc: "When it runs: see hooks of runtime. OnRunComplete: after a run that is complete."},
		{name: "type", value: text(&h.Type, "", either(agent.HookTypes()), freeText), required: true, doc: "How it decides. rule: by conditions. http: by the answer of a URL. approval: a person decides."},
		{name: "matcher", value: text(&h.Matcher, "", "tool name or glob", freeText), doc: "Only for events of tools: the tools whose calls it is for, by the name that the model sees or that the MCP server uses. Empty: all tools."},
		{name: "enabled", value: inverted(&h.Disabled), doc: "false: the hook does not run."},
		{name: "position", value: integer(&h.Position, 0, 0, 1_000_000), doc: "Hooks of an event run in this order. Those with the same position run in the order of the list."},
		{name: "config", value: configObject{object{agentHookConfigKeys(&h.Config)}}, doc: "Settings of the type. See agents.md."},
	}
}

func agentHookConfigKeys(c *AgentHookConfig) []key {
	return []key{
		{name: "condition", value: text(&c.Condition, "", "condition", anyText), doc: "Only for rule: <field> [NOT] CONTAINS|STARTS_WITH|MATCHES|IN <value>. If it holds, or cannot be checked, the hook denies."},
		{name: "message", value: text(&c.Message, "", "text", anyText), doc: "For rule: why it denies, for the model or the client. For approval: for the person who decides."},
		{name: "rules", value: hookRules{objects[org.HookRule]{&c.Rules, hookRuleKeys}}, doc: "Only for rule, in place of condition: 1 to 20 conditions. The first that holds denies."},
		{name: "url", value: text(&c.URL, "", "URL", freeText), doc: "Only for http: where the hook is sent to. The outbound policy applies to it."},
		{name: "headers", value: toolHeaders(&c.Headers), doc: "Only for http: headers of each request. A credential is a reference to the vault, such as secret:NAME."},
		{name: "secret", value: text(&c.Secret, "", "reference", freeText), doc: "Only for http: a secret of the vault, such as secret:hook_key, whose value is whsec_ and base64. It signs requests like those of webhooks. Empty: they are not signed."},
		{name: "timeout_seconds", value: secondsLater(&c.TimeoutSeconds, agent.MaxHookTimeout).or("5"), doc: "Only for http: maximum time of a request."},
		{name: "on_error", value: text(&c.OnError, "", "allow or deny", freeText).or("allow"), doc: "Only for http, if the request fails, takes too long or has no valid answer. allow: the run goes on as if the hook had allowed. deny: as if it had denied; for PostToolUse the result is withheld."},
		{name: "include_run_context", value: boolean(&c.Context, false), doc: "Only for http. true: requests name the run, the key and the model."},
		{name: "timeout", value: secondsLater(&c.Timeout, agent.MaxApprovalTimeout).or("300"), doc: "Only for approval: how many seconds a call waits. Then it counts as denied."},
	}
}

// freeText accepts what a later check refuses with the words of the API.
func freeText(string) error { return nil }

// checkAgentName takes a name that can be an id, too.
func checkAgentName(s string) error {
	switch {
	case strings.HasPrefix(s, agent.Prefix):
		return fmt.Errorf("%s begins like the id of an agent that was created over the API; choose another name", quote(s))
	case s == "runs": // /api/agents/runs/{id} is a run
		return errors.New(`"runs" is a part of the API's paths; choose another name`)
	}
	return checkID(s)
}

// hidden shows how long a text is, in place of it.
func hidden(s scalar[string]) scalar[string] {
	s.hide = func(text string) string {
		if text == "" {
			return showText(text)
		}
		return fmt.Sprintf("%d bytes", len(text))
	}
	return s
}

// checkedLater accepts every whole number: a later check has the words of the API.
func checkedLater(s scalar[*int]) scalar[*int] {
	s.parse = func(r raw) (*int, error) {
		n, err := parseInt(r, math.MinInt32, math.MaxInt32)
		return &n, err
	}
	return s
}

// secondsLater is checkedLater for a number of seconds; 0 = the default.
func secondsLater(into *int, most time.Duration) scalar[int] {
	s := integer(into, 0, 1, int(most/time.Second))
	s.wire = filled(0)
	s.parse = func(r raw) (int, error) {
		n, err := parseInt(r, math.MinInt32, math.MaxInt32)
		if err == nil && n == 0 {
			err = errors.New("must be a whole number of seconds, at least 1")
		}
		return n, err
	}
	return s
}

// maybeDecimal is a number whose absence means something else.
func maybeDecimal(into **float64, typ string) scalar[*float64] {
	show := func(n *float64) string {
		if n == nil {
			return "unset"
		}
		return strconv.FormatFloat(*n, 'g', -1, 64)
	}
	return scalar[*float64]{into: into, typ: typ, show: show, parse: func(r raw) (*float64, error) {
		if r.kind != isNumber {
			return nil, wrongType(r, "a number")
		}
		n, err := strconv.ParseFloat(r.text, 64)
		if err != nil {
			return nil, wrongType(r, "a number")
		}
		return &n, nil
	}}
}

// agentHooks is a list of hooks, which have no name by which a change could name them.
type agentHooks struct{ objects[AgentHook] }

func (h agentHooks) json() any {
	all := make([]Settings, len(*h.into))
	for i := range *h.into {
		all[i] = settingsOf(h.keys(&(*h.into)[i]))
	}
	return all
}

func (h agentHooks) shown() string {
	var all []string
	for _, one := range *h.into {
		all = append(all, one.Event+" "+one.Type)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// Definition returns the agent as a run has it.
func (a Agent) Definition() agent.Definition {
	d := agent.Definition{Name: a.Name, Description: a.Description, Model: a.Model, SystemPrompt: a.SystemPrompt, Settings: a.Settings}
	for _, t := range a.Tools {
		one := agent.Assignment{ID: t.Name, Type: agent.CustomTool, Name: t.Name, Rules: rulesOf(t.Rules), Schemas: t.Schemas}
		if slices.Contains(builtin.OfAgents(), t.Name) {
			one.Type = agent.BuiltinTool
		}
		d.Tools = append(d.Tools, one)
	}
	for _, s := range a.Servers {
		one := agent.Server{ID: s.Name, Name: s.Name, Settings: s.Settings}
		one.Settings.Name = ""
		d.Servers = append(d.Servers, one)
	}
	for i, h := range a.Hooks {
		one := h.hook()
		one.ID = agent.OwnHook + strconv.Itoa(i)
		d.Hooks = append(d.Hooks, one)
	}
	return d
}

func rulesOf(all []org.HookRule) (out []agent.HookRule) {
	for _, r := range all {
		out = append(out, agent.HookRule(r))
	}
	return out
}

func (h AgentHook) hook() agent.Hook {
	out := agent.Hook{Event: agent.HookEvent(h.Event), Matcher: h.Matcher, Enabled: !h.Disabled, Position: h.Position}
	switch c := h.Config; h.Type {
	case "http":
		out.HTTP = &agent.HTTPHook{URL: c.URL, Headers: c.Headers, Secret: c.Secret, TimeoutSeconds: c.TimeoutSeconds, IncludeRunContext: c.Context, OnError: c.OnError}
	case "rule":
		if out.Rules = rulesOf(c.Rules); len(out.Rules) == 0 {
			out.Rules = []agent.HookRule{{Condition: c.Condition, Message: c.Message}}
		}
	case "approval":
		out.Approval = &agent.ApprovalHook{Message: c.Message, TimeoutSeconds: c.Timeout}
	}
	return out
}

// misplaced returns the keys of config that the type of the hook does not have.
func (h AgentHook) misplaced() (out []string) {
	c := h.Config
	for _, one := range []struct {
		key   string
		given bool
		types []string
	}{
		{"condition", c.Condition != "", []string{"rule"}},
		{"rules", len(c.Rules) > 0, []string{"rule"}},
		{"message", c.Message != "", []string{"rule", "approval"}},
		{"url", c.URL != "", []string{"http"}},
		{"headers", len(c.Headers) > 0, []string{"http"}},
		{"secret", c.Secret != "", []string{"http"}},
		{"timeout_seconds", c.TimeoutSeconds != 0, []string{"http"}},
		{"on_error", c.OnError != "", []string{"http"}},
		{"include_run_context", c.Context, []string{"http"}},
		{"timeout", c.Timeout != 0, []string{"approval"}},
	} {
		if one.given && !slices.Contains(one.types, h.Type) {
			out = append(out, one.key)
		}
	}
	return out
}

// checkAgents finds what is wrong with the agents of an org. The rules, and their words, are those of the API.
func (d *decoder) checkAgents(path string, all []Agent) {
	unique(d, all, path+"[%d].name", func(a Agent) string { return a.Name })
	for i, a := range all {
		at, before := fmt.Sprintf("%s[%d]", path, i), len(d.mistakes)
		for j := range a.Servers {
			d.checkAgentServer(fmt.Sprintf("%s.mcp_servers[%d]", at, j), &a.Servers[j])
		}
		for j, t := range a.Definition().Tools {
			d.checkAgentSchemas(fmt.Sprintf("%s.tools[%d].config_override", at, j), t)
		}
		for j, h := range a.Hooks {
			d.checkAgentHook(fmt.Sprintf("%s.hooks[%d]", at, j), h)
		}
		if len(d.mistakes) > before || d.mistakenIn(at) {
			continue // one mistake is reported once
		}
		var wrong *agent.FieldError
		if err := a.Definition().Check(); errors.As(err, &wrong) {
			d.failPath(strings.TrimSuffix(at+"."+a.key(wrong.Field), "."), "%s", wrong.Message)
		}
	}
}

// checkAgentNames warns of models, tools and matchers of agents that stand for nothing. Which custom tools there are, and which tools MCP
// servers have, is not known.
func (d *decoder) checkAgentNames(c *Config) {
	serves := c.Serves()
	for i, o := range c.Orgs {
		for j, a := range o.Agents {
			at := fmt.Sprintf("orgs[%d].agents[%d]", i, j)
			if d.mistakenIn(at) {
				continue // what it names may be the mistake
			}
			known := agent.Known{Serves: serves, Unlisted: c.unlisted(o, a), Selects: func(selects func(name, own string) bool) bool {
				return slices.ContainsFunc(o.toolNames(), func(name string) bool { return selects(name, "") })
			}}
			for _, w := range a.Definition().Warnings(known) {
				if path := at + "." + a.key(w.Field); !w.Unsure {
					d.warn(nearestOrigin(d.where, path), path, "%v", w)
				}
			}
		}
	}
}

// unlisted returns the enabled MCP servers that a run of the agent gets: only these know which tools they have.
func (c *Config) unlisted(o Org, a Agent) (names []string) {
	if !o.loop() {
		return nil
	}
	add := func(name string, enabled bool) {
		if enabled {
			names = append(names, name)
		}
	}
	for _, s := range a.Servers {
		add(s.Name, s.Settings.Enabled)
	}
	for _, m := range o.MCPServers {
		add(m.Name, m.Enabled)
	}
	for _, shared := range c.MCPServers {
		m, ours := shared.For(o.ID)
		add(m.Name, ours && m.Enabled)
	}
	return names
}

// toolNames returns the tools of the org that are no MCP servers'.
func (o Org) toolNames() (names []string) {
	for _, t := range o.HTTPTools {
		names = append(names, t.Name)
	}
	for _, t := range o.Runtime.BuiltinTools {
		names = append(names, t.Name)
	}
	return names
}

// key returns the key of the file for a member of the definition.
func (a Agent) key(field string) string {
	field = strings.Replace(field, "tool_name", "name", 1)
	one := regexp.MustCompile(`^(hooks|tools)\[(\d+)\]\.(config|config_override)\.(condition|message)$`).FindStringSubmatch(field)
	if one == nil {
		return field
	}
	i, _ := strconv.Atoi(one[2]) // digits
	if one[1] == "hooks" && len(a.Hooks[i].Config.Rules) == 0 {
		return field
	}
	return fmt.Sprintf("%s[%d].%s.rules[0].%s", one[1], i, one[3], one[4])
}

// mistakenIn reports whether there is a mistake in what is at the path.
func (d *decoder) mistakenIn(path string) bool {
	return slices.ContainsFunc(d.mistakes, func(m Mistake) bool { return strings.HasPrefix(m.Path, path+".") })
}

func (d *decoder) checkAgentServer(path string, s *AgentServer) {
	d.checkServerSettings(path+".config", &s.Settings)
	d.checkInTheOpen(path, s.Settings.URL, s.Settings.Headers, "env:NAME, file:PATH or secret:NAME")
}

// checkAgentSchemas checks the schemas of a tool as the API does.
func (d *decoder) checkAgentSchemas(path string, t agent.Assignment) {
	var wrong *agent.FieldError
	switch err := agent.CheckSchemas(t.Schemas); {
	case errors.As(err, &wrong):
		d.failPath(path+"."+wrong.Field, "%s", wrong.Message)
	case len(t.Schemas) > 0 && !t.ForDatabases():
		d.failPath(path+".schemas", "is for database_query and database_write; other tools have none")
	}
}

func (d *decoder) checkAgentHook(path string, h AgentHook) {
	for _, key := range h.misplaced() {
		if !slices.Contains(agent.HookTypes(), h.Type) {
			break // reported with the type
		}
		d.failPath(path+".config."+key, "is not for the type %s; remove it", h.Type)
	}
	if h.Type == "rule" && h.Config.Condition != "" && len(h.Config.Rules) > 0 {
		d.failPath(path+".config.condition", "cannot be combined with rules")
	}
	d.checkInTheOpen(path+".config", h.Config.URL, h.Config.Headers, "secret:NAME")
	for name, value := range h.Config.Headers {
		if t, err := secret.Parse(value); err == nil && t.Ref() != "" && t.Ref().Kind() != secret.Vault {
			d.failPath(join(path+".config.headers", name), "a header of a hook cannot refer to the gateway's environment or files; store the value with PUT /api/secrets/NAME and refer to it with secret:NAME")
		}
	}
}

// checkInTheOpen reports credentials that would be stored with the sessions of the agent.
func (d *decoder) checkInTheOpen(path, target string, headers map[string]string, instead string) {
	credential := regexp.MustCompile(`(?i)auth|cookie|key|token|secret|password|session|credential`)
	for name, value := range headers {
		if t, err := secret.Parse(value); err == nil && t.IsLiteral() && credential.MatchString(name) {
			d.failPath(join(path+".headers", name), "contains a credential; refer to it with %s", instead)
		}
	}
	if u, err := url.Parse(target); err == nil {
		for name := range u.Query() {
			if credential.MatchString(name) {
				d.failPath(path+".url", "the URL parameter %s looks like a credential; send it in a header with %s", quote(name), instead)
			}
		}
	}
}
