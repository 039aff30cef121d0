package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// maxHooks is how many hooks an org may have.
const maxHooks = 50

// hooks is a list of hooks, which the management API reads and writes as a whole.
type hooks struct{ objects[org.Hook] }

func hookList(into *[]org.Hook) hooks { return hooks{objects[org.Hook]{into, hookKeys}} }

// hookKeys are the settings of a hook.
func hookKeys(h *org.Hook) []key {
	return []key{
		{name: "id", value: text(&h.ID, "", "name", checkID), required: true, doc: "Name of the hook, unique in the org. It is in logs, audit rows and events."},
		{name: "event", value: word(&h.Event, "", "OnRunStart", "PreToolUse", "PostToolUse", "PreResponse", "OnDelegation", "OnRunComplete"), required: true,
			unbuilt: unbuilt{[]string{"OnDelegation"}, "set it to OnRunStart, PreToolUse, PostToolUse, PreResponse or OnRunComplete"},
			doc:     "When it runs. OnRunStart: before the first model call. PreToolUse: before a tool call that the gateway executes. PostToolUse: after one, before the model sees its result. PreResponse: before the answer; the client gets nothing of it earlier. OnRunComplete: after a run that is complete; what the hook answers changes nothing."},
		{name: "type", value: word(&h.Type, "", "rule", "http", "approval"), required: true,
			doc: "How it decides. rule: by conditions. http: by the answer of a URL. approval: a person decides."},
		{name: "matcher", value: text(&h.Matcher, "", "tool name or glob", checkMatcher), doc: "Only for events of tools: the tools whose calls it is for, by the name that the model sees or that the MCP server uses. Empty: all tools."},
		{name: "keys", value: namesChoice{&h.Keys, "key name", checkWord},
			doc: "Keys whose runs have the hook: names of keys of this file, or ids of other keys."},
		{name: "enabled", value: inverted(&h.Disabled), doc: "false: the hook does not run."},
		{name: "position", value: integer(&h.Position, 0, 0, 1_000_000), doc: "Hooks of an event run in this order. Those with the same position run in the order of the list."},
		{name: "config", value: configObject{object{hookConfigKeys(&h.Config)}}, doc: "Settings of the type. See hooks.md."},
	}
}

func hookConfigKeys(c *org.HookConfig) []key {
	return []key{
		{name: "condition", value: text(&c.Condition, "", "condition", anyText), doc: "Only for rule: <field> [NOT] CONTAINS|STARTS_WITH|MATCHES|IN <value>. If it holds, or cannot be checked, the hook denies."},
		{name: "rules", value: hookRules{objects[org.HookRule]{&c.Rules, hookRuleKeys}}, doc: "Only for rule, in place of condition: 1 to 20 conditions. The first that holds denies."},
		{name: "message", value: text(&c.Message, "", "text", anyText), doc: "For rule: why it denies, for the model or the client. For approval: for the person who decides."},
		{name: "url", value: text(&c.URL, "", "URL", checkHookURL), doc: "Only for http: where the hook is sent to. The outbound policy applies to it."},
		{name: "secret", value: text(&c.Secret, "", "reference", checkVaultRef), doc: "Only for http: a secret of the vault, such as secret:hook_key, whose value is whsec_ and base64. It signs requests like those of webhooks. Empty: they are not signed."},
		{name: "timeout", value: duration(&c.Timeout, 0, 0, agent.MaxApprovalTimeout).or("5s for http, 300s for approval"), doc: "For http: maximum time of a request, at most 30s. For approval: how long a call waits; then it counts as denied."},
		{name: "on_error", value: unsetWord(word(&c.OnError, "", agent.HookAllow, agent.HookDeny).or("allow")), doc: "Only for http, if the request fails, takes too long or has no valid answer. allow: the run goes on as if the hook had allowed. deny: as if it had denied; for PostToolUse the result is withheld."},
		{name: "include_run_context", value: boolean(&c.Context, false), doc: "Only for http. true: requests name the run, the key and the model."},
	}
}

func hookRuleKeys(r *org.HookRule) []key {
	return []key{
		{name: "condition", value: text(&r.Condition, "", "condition", anyText), required: true, doc: "As condition of the hook."},
		{name: "message", value: text(&r.Message, "", "text", anyText), doc: "Why it denies."},
	}
}

// unsetWord leaves the word out of what is shown if it is not set.
func unsetWord(s scalar[string]) scalar[string] {
	s.wire = func(word string) any {
		if word == "" {
			return unset{}
		}
		return word
	}
	return s
}

func checkMatcher(s string) error {
	if _, err := path.Match(s, ""); err != nil || strings.ContainsAny(s, " \t") {
		return errors.New("must be a tool name, or a glob such as pay_*")
	}
	return nil
}

func checkHookURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Contains(s, "#") {
		return errors.New("must be an http or https URL without a user name and without a fragment")
	}
	return nil
}

func checkVaultRef(s string) error {
	if h := (agent.HTTPHook{URL: "https://example.com", Secret: s}); errors.As(agentHook(h).Check(), new(*agent.FieldError)) {
		return errors.New("must refer to the vault, such as secret:hook_key")
	}
	return nil
}

func agentHook(h agent.HTTPHook) agent.Hook { return agent.Hook{Event: agent.OnRunStart, HTTP: &h} }

// checkHooks compares the keys of hooks with each other. The rules are those of agents' hooks.
func (d *decoder) checkHooks(path string, all []org.Hook) {
	if len(all) > maxHooks {
		d.failPath(path, "has %d hooks; want at most %d", len(all), maxHooks)
	}
	seen := map[string]bool{}
	for i, h := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		if seen[h.ID] && h.ID != "" {
			d.failPath(join(at, "id"), "is that of another hook")
		}
		seen[h.ID] = true
		if h.Event == "" || h.Type == "" { // reported
			continue
		}
		for _, key := range misplaced(h) {
			d.failPath(at+".config."+key, "is not for the type %s; remove it", h.Type)
		}
		var wrong *agent.FieldError
		if err := checkedHook(h).Check(); errors.As(err, &wrong) {
			d.failPath(at+"."+hookField(h, wrong.Field), "%s", wrong.Message)
		} else if err != nil {
			d.failPath(at, "%v", err)
		}
	}
}

// hookField returns the key of the file for a member of a hook of an agent.
func hookField(h org.Hook, field string) string {
	field = strings.Replace(field, "timeout_seconds", "timeout", 1)
	if inside, ok := strings.CutPrefix(field, "config."); ok && len(h.Config.Rules) == 1 && (inside == "condition" || inside == "message") {
		return "config.rules[0]." + inside
	}
	return field
}

// misplaced returns the keys of config that the type does not have.
func misplaced(h org.Hook) (out []string) {
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
		{"secret", c.Secret != "", []string{"http"}},
		{"timeout", c.Timeout != 0, []string{"http", "approval"}},
		{"on_error", c.OnError != "", []string{"http"}},
		{"include_run_context", c.Context, []string{"http"}},
	} {
		if one.given && !slices.Contains(one.types, h.Type) {
			out = append(out, one.key)
		}
	}
	return out
}

// checkedHook returns the hook as an agent has it.
func checkedHook(h org.Hook) agent.Hook {
	out := agent.Hook{ID: h.ID, Event: agent.HookEvent(h.Event), Matcher: h.Matcher, Enabled: !h.Disabled, Position: h.Position}
	c := h.Config
	seconds := int((c.Timeout + time.Second - 1) / time.Second)
	switch h.Type {
	case "http":
		out.HTTP = &agent.HTTPHook{URL: c.URL, Secret: c.Secret, TimeoutSeconds: seconds, OnError: c.OnError, IncludeRunContext: c.Context}
	case "rule":
		out.Rules = []agent.HookRule{}
		if c.Condition != "" {
			out.Rules = append(out.Rules, agent.HookRule{Condition: c.Condition, Message: c.Message})
		}
		for _, r := range c.Rules {
			out.Rules = append(out.Rules, agent.HookRule(r))
		}
	case "approval":
		out.Approval = &agent.ApprovalHook{Message: c.Message, TimeoutSeconds: seconds}
	}
	return out
}

func (h hooks) json() any {
	all := make([]Settings, len(*h.into))
	for i := range *h.into {
		all[i] = settingsOf(h.keys(&(*h.into)[i]))
	}
	return all
}

func (h hooks) shown() string {
	var all []string
	for _, one := range *h.into {
		all = append(all, one.ID+" ("+one.Event+" "+one.Type+")")
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// hookRules is a list of the rules of a hook.
type hookRules struct{ objects[org.HookRule] }

func (h hookRules) json() any {
	if len(*h.into) == 0 {
		return unset{}
	}
	all := make([]Settings, len(*h.into))
	for i := range *h.into {
		all[i] = settingsOf(h.keys(&(*h.into)[i]))
	}
	return all
}

func (h hookRules) shown() string { return fmt.Sprintf("%d rules", len(*h.into)) }

// configObject is an object that the management API shows with its members.
type configObject struct{ object }

func (o configObject) json() any { return settingsOf(o.keys) }

func (o configObject) shown() string { return "map" }

// inverted is a boolean that is stored as its opposite, so that the zero value means true.
func inverted(into *bool) scalar[bool] {
	b := boolean(into, false)
	parse, show, wire := b.parse, b.show, b.wire
	b.said = "true"
	b.parse = func(r raw) (bool, error) { v, err := parse(r); return !v, err }
	b.show = func(v bool) string { return show(!v) }
	b.wire = func(v bool) any {
		if wire == nil {
			return !v
		}
		return wire(!v)
	}
	return b
}
