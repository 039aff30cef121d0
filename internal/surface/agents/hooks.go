package agents

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// hookObject is a hook on the wire. Config is one of the following types.
type hookObject struct {
	ID        string          `json:"id"`
	Event     agent.HookEvent `json:"event"`
	Type      string          `json:"type"`
	Matcher   *string         `json:"matcher"` // nil = all tools
	Config    any             `json:"config"`
	Enabled   bool            `json:"enabled"`
	Position  int             `json:"position"`
	Warnings  []string        `json:"warnings,omitempty"`
	CreatedAt *string         `json:"created_at"`
}

type httpConfig struct {
	URL               string            `json:"url"`
	Headers           map[string]string `json:"headers"`
	Secret            string            `json:"secret,omitempty"`
	TimeoutSeconds    int               `json:"timeout_seconds"`
	IncludeRunContext bool              `json:"include_run_context"`
	OnError           string            `json:"on_error"`
}

type ruleConfig struct {
	Condition string `json:"condition"`
	Action    string `json:"action"`
	Message   string `json:"message"`
}

type rulesConfig struct {
	Rules []ruleConfig `json:"rules"`
}

type approvalConfig struct {
	Message string `json:"message"`
	Timeout int    `json:"timeout"` // in seconds
}

func wireHooks(a agent.Agent) []hookObject {
	return surface.Each(a.Hooks, func(hook agent.Hook) hookObject { return wireHook(hook, a.Declared) })
}

func wireHook(hook agent.Hook, declared bool) hookObject {
	out := hookObject{
		ID: hook.ID, Event: hook.Event, Type: hook.Type(), Enabled: hook.Enabled, Position: hook.Position,
		Matcher: surface.Given(hook.Matcher), CreatedAt: millis.Unix(hook.CreatedAt),
	}
	switch {
	case hook.HTTP != nil:
		c := httpConfig{hook.HTTP.URL, map[string]string{}, hook.HTTP.Secret, hook.HTTP.TimeoutSeconds, hook.HTTP.IncludeRunContext, hook.HTTP.OnError}
		for name, value := range hook.HTTP.Headers {
			if declared {
				value = "[redacted]"
			}
			c.Headers[name] = value
		}
		if c.TimeoutSeconds == 0 {
			c.TimeoutSeconds = int(agent.DefaultHookTimeout / time.Second)
		}
		if c.OnError == "" {
			c.OnError = agent.HookAllow
		}
		out.Config = c
	case hook.Approval != nil:
		c := approvalConfig{hook.Approval.Message, hook.Approval.TimeoutSeconds}
		if c.Timeout == 0 {
			c.Timeout = int(agent.DefaultApprovalTimeout / time.Second)
		}
		out.Config = c
	default:
		all := []ruleConfig{}
		for _, one := range hook.Rules {
			all = append(all, ruleConfig{one.Condition, agent.HookDeny, one.Message})
		}
		if out.Config = any(rulesConfig{all}); len(all) == 1 {
			out.Config = all[0]
		}
	}
	return out
}

// applyHooks replaces the hooks of a definition, if the body has any. One that says what a hook which is there
// says is that hook.
func (h *definitions) applyHooks(f *surface.Fields, d *agent.Definition) error {
	all, given := f.List("hooks")
	if !given || f.Err != nil {
		return f.Err
	}
	if len(all) > agent.MaxHooks {
		return surface.InvalidValue("hooks", "hooks: an agent has at most %d hooks", agent.MaxHooks)
	}
	before := slices.Clone(d.Hooks)
	d.Hooks = nil
	for i, one := range all {
		hook, err := h.readHook(surface.FieldsOf(fmt.Sprintf("hooks[%d]", i), one))
		if err != nil {
			return err
		}
		same := func(b agent.Hook) bool {
			b.ID, b.CreatedAt = "", 0
			return agent.Definition{Hooks: []agent.Hook{b}}.Equal(agent.Definition{Hooks: []agent.Hook{hook}})
		}
		if j := slices.IndexFunc(before, same); j >= 0 {
			hook = before[j]
			before = slices.Delete(before, j, j+1)
		} else {
			hook.ID, hook.CreatedAt = h.newID(agent.HookPrefix), h.now().UnixMilli()
		}
		d.Hooks = append(d.Hooks, hook)
	}
	return nil
}

// readHook reads a hook, without an id and the time of its creation.
func (h *definitions) readHook(f *surface.Fields) (agent.Hook, error) {
	hook := agent.Hook{Enabled: true}
	if f.Path != "" { // of what GET has returned
		f.Take("id")
		f.Take("created_at")
		f.Take("warnings")
	}
	var event, kind string
	f.Text("event", &event)
	f.Text("type", &kind)
	f.Text("matcher", &hook.Matcher)
	f.Bool("enabled", true, &hook.Enabled)
	f.Int("position", &hook.Position)
	hook.Event = agent.HookEvent(event)
	config := []byte("{}")
	if v, ok := f.Take("config"); ok && !surface.IsNull(v) {
		config = v
	}
	if f.Err == nil {
		f.Err = readConfig(surface.FieldsOf(f.At("config"), config), kind, &hook)
	}
	if err := f.Done(); err != nil {
		return hook, err
	}
	if err := hook.Check(); err != nil {
		return hook, inPath(f.Path, surface.Refused(err, surface.Thing{}))
	}
	return hook, inPath(f.Path, h.checkHTTP(hook.HTTP))
}

// readConfig reads the config of a hook of the type.
func readConfig(f *surface.Fields, kind string, hook *agent.Hook) error {
	if f.Err != nil {
		return f.Err
	}
	switch kind {
	case "http":
		c := &agent.HTTPHook{}
		hook.HTTP = c
		f.Text("url", &c.URL)
		f.Texts("headers", &c.Headers)
		f.Text("secret", &c.Secret)
		readSeconds(f, "timeout_seconds", agent.DefaultHookTimeout, &c.TimeoutSeconds)
		f.Bool("include_run_context", false, &c.IncludeRunContext)
		f.Text("on_error", &c.OnError)
		if c.OnError == agent.HookAllow { // a hook that says the default is the one that does not say it
			c.OnError = ""
		}
		if len(c.Headers) == 0 {
			c.Headers = nil
		}
	case "rule":
		hook.Rules = []agent.HookRule{}
		rules, given := f.List("rules")
		if given && f.Has("condition") {
			f.Fail("condition", "cannot be combined with rules")
		}
		if !given && f.Err == nil {
			one := readRule(f)
			hook.Rules = append(hook.Rules, one)
		}
		for i, v := range rules {
			inside := surface.FieldsOf(fmt.Sprintf("%s[%d]", f.At("rules"), i), v)
			one := readRule(inside)
			if err := inside.Done(); err != nil {
				return err
			}
			hook.Rules = append(hook.Rules, one)
		}
	case "approval":
		c := &agent.ApprovalHook{}
		hook.Approval = c
		f.Text("message", &c.Message)
		readSeconds(f, "timeout", agent.DefaultApprovalTimeout, &c.TimeoutSeconds)
	default: // refused by Check
		clear(f.Rest())
	}
	return f.Done()
}

// readSeconds reads a time in seconds, which is at least one. The default is stored as 0.
func readSeconds(f *surface.Fields, name string, standard time.Duration, into *int) {
	given := f.Has(name)
	var n *int
	if f.Number(name, &n); !given {
		return
	}
	if n == nil {
		*into = 0
		return
	}
	if *n < 1 {
		f.Fail(name, "must be a whole number of seconds, at least 1")
	}
	if *into = *n; *n == int(standard/time.Second) {
		*into = 0
	}
}

func readRule(f *surface.Fields) (one agent.HookRule) {
	action := agent.HookDeny
	f.Text("condition", &one.Condition)
	f.Text("message", &one.Message)
	if f.Text("action", &action); action != agent.HookDeny && action != "" {
		f.Fail("action", `must be "deny"; what no rule denies is allowed`)
	}
	return one
}

// checkHTTP refuses what an org must not store: a URL that the outbound policy refuses, a credential in the
// open, and a reference to what belongs to the operator.
func (h *definitions) checkHTTP(c *agent.HTTPHook) error {
	if c == nil {
		return nil
	}
	if err := surface.CheckCredentials(c.URL, c.Headers); err != nil {
		return inPath("config", err)
	}
	for name, value := range c.Headers {
		switch t, err := secret.Parse(value); {
		case !validHeader(name, value):
			return surface.InvalidValue("config.headers", "config.headers: %.60q is not a header that can be sent", name)
		case err != nil || t.Ref() == "":
		case t.Ref().Kind() != secret.Vault:
			return surface.InvalidValue("config.headers."+name, "config.headers.%s: a header cannot refer to the gateway's environment or files; "+
				"store the value with PUT /api/secrets/NAME and refer to it with secret:NAME", name)
		case h.vault == nil:
			return surface.NoVault("secrets")
		}
	}
	if c.Secret != "" && h.vault == nil {
		return surface.NoVault("secrets")
	}
	return inPath("config", h.judge(c.URL))
}

// validHeader reports whether an http hook may send the header. Those that the gateway sets are refused.
func validHeader(name, value string) bool {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	own := []string{"Host", "Content-Length", "Content-Type", "Connection", "Transfer-Encoding", "Upgrade", "Te", "Trailer", "Keep-Alive"}
	return name != "" && len(name) <= 128 && strings.Trim(name, token) == "" && len(value) <= 8<<10 && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) &&
		!slices.Contains(own, http.CanonicalHeaderKey(name)) && !strings.HasPrefix(http.CanonicalHeaderKey(name), "Webhook-")
}

// Hooks answers GET /api/agents/{id}/hooks, in the order of their creation.
func (h *definitions) Hooks() surface.Endpoint {
	return h.listOf(func(r *http.Request, caller caller.Caller, a agent.Agent, page surface.OffsetPage) (int, any, error) {
		return http.StatusOK, page.Of("hooks", h.warned(r, caller, a, surface.Cut(wireHooks(a), page)), len(a.Hooks)), nil
	})
}

// warned returns the hooks of an agent with a warning for each matcher that matches none of the tools which the agent
// and the org have now. A key that sees only some of them gets no warnings.
func (h *definitions) warned(r *http.Request, caller caller.Caller, a agent.Agent, hooks []hookObject) []hookObject {
	limited := func(hook hookObject) bool { return hook.Matcher != nil }
	if access := caller.Principal.Access; !slices.ContainsFunc(hooks, limited) || access.Servers != nil || access.Tools != nil || access.ReadOnly {
		return hooks
	}
	ctx, cancel := context.WithTimeout(r.Context(), discoveryTimeout)
	defer cancel()
	var own []org.MCPServer
	for _, s := range a.Servers {
		m := s.Settings
		m.Org, m.Name, m.FromFile = caller.Org.ID, s.Name, a.Declared
		own = append(own, m)
	}
	tools, err := h.servers.Tools(ctx, caller, own)
	if err != nil {
		return hooks
	}
	for _, w := range a.Warnings(agent.Known{Selects: tools.Selects, Unlisted: tools.Unavailable}) {
		if w.Hook < 0 {
			continue
		}
		if i := slices.IndexFunc(hooks, func(o hookObject) bool { return o.ID == a.Hooks[w.Hook].ID }); i >= 0 {
			hooks[i].Warnings = append(hooks[i].Warnings, w.String())
		}
	}
	return hooks
}

func findHook(r *http.Request, d agent.Definition) (int, error) {
	return placeOf(r, "hid", "hook of the agent", d.Hooks, func(h agent.Hook) string { return h.ID })
}

// Hook answers GET /api/agents/{id}/hooks/{hid}.
func (h *definitions) Hook() surface.Endpoint {
	return h.ofAgent(func(r *http.Request, caller caller.Caller, a agent.Agent) (int, any, error) {
		i, err := findHook(r, a.Definition)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, h.warned(r, caller, a, []hookObject{wireHook(a.Hooks[i], a.Declared)})[0], nil
	})
}

// AddHook answers POST /api/agents/{id}/hooks.
func (h *definitions) AddHook() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, err := surface.ReadFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		hook, err := h.readHook(body)
		if err != nil {
			return 0, nil, err
		}
		hook.ID, hook.CreatedAt = h.newID(agent.HookPrefix), h.now().UnixMilli()
		a, err := h.change(r, caller, func(d *agent.Definition) error {
			if len(d.Hooks) >= agent.MaxHooks {
				return fault.New(fault.Conflict, "cap_reached", "an agent has at most %d hooks; delete one", agent.MaxHooks)
			}
			d.Hooks = append(d.Hooks, hook)
			return nil
		})
		if err != nil {
			return 0, nil, err
		}
		return http.StatusCreated, h.warned(r, caller, a, []hookObject{wireHook(hook, false)})[0], nil
	})
}

// RemoveHook answers DELETE /api/agents/{id}/hooks/{hid}.
func (h *definitions) RemoveHook() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		_, err := h.change(r, caller, func(d *agent.Definition) error {
			i, err := findHook(r, *d)
			if err == nil {
				d.Hooks = slices.Delete(d.Hooks, i, i+1)
			}
			return err
		})
		return http.StatusOK, surface.Deleted(r.PathValue("hid"), ""), err
	})
}
