package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// HookPrefix begins the ids of hooks.
const HookPrefix = "hook_"

// OwnHook begins the id under which a run has a hook of its agent whose own id is that of a hook of the org, and
// the ids of the hooks of declared agents.
const OwnHook = "agent:"

// Hook is what happens at a point of a run beside the model and the tools. Exactly one of HTTP, Rules and
// Approval is set. A hook never changes: it is added and removed.
type Hook struct {
	ID        string    `json:"id"` // unique in the agent; OwnHook and its place in the file for a declared agent
	Event     HookEvent `json:"event"`
	Matcher   string    `json:"matcher,omitempty"` // a tool name, or a glob such as pay_*; "" = all tools
	Enabled   bool      `json:"enabled"`
	Position  int       `json:"position,omitempty"`   // hooks run in the order of it, and then of their creation
	CreatedAt int64     `json:"created_at,omitempty"` // Unix milliseconds

	HTTP     *HTTPHook     `json:"http,omitempty"`
	Rules    []HookRule    `json:"rules,omitempty"` // the first that holds denies
	Approval *ApprovalHook `json:"approval,omitempty"`
}

// HookEvent is a point of a run.
type HookEvent string

// The events of hooks.
const (
	OnRunStart    HookEvent = "OnRunStart"
	PreToolUse    HookEvent = "PreToolUse"
	PostToolUse   HookEvent = "PostToolUse"
	OnDelegation  HookEvent = "OnDelegation"
	PreResponse   HookEvent = "PreResponse"
	OnRunComplete HookEvent = "OnRunComplete"
)

// HookEvents returns all events, in the order of a run.
func HookEvents() []HookEvent {
	return []HookEvent{OnRunStart, PreToolUse, PostToolUse, OnDelegation, PreResponse, OnRunComplete}
}

// OfTools reports whether the event is about one tool call, so that a matcher can select it.
func (e HookEvent) OfTools() bool { return e == PreToolUse || e == PostToolUse || e == OnDelegation }

// MayBlock reports whether a hook can deny at the event.
func (e HookEvent) MayBlock() bool { return e != PostToolUse && e != OnRunComplete }

// MayModify reports whether a hook can change what the event is about.
func (e HookEvent) MayModify() bool { return e == PreToolUse || e == PostToolUse || e == PreResponse }

// HTTPHook sends the event to a URL, whose answer can allow, deny or modify.
type HTTPHook struct {
	URL               string            `json:"url"`
	Headers           map[string]string `json:"headers,omitempty"`         // a value may end in a reference, as in a header of an MCP server
	Secret            string            `json:"secret,omitempty"`          // a reference to the vault; it signs as that of a webhook; "" = not signed
	TimeoutSeconds    int               `json:"timeout_seconds,omitempty"` // 0 = DefaultHookTimeout
	IncludeRunContext bool              `json:"include_run_context,omitempty"`
	OnError           string            `json:"on_error,omitempty"` // HookAllow or HookDeny; "" = HookAllow
}

// What on_error and action can be.
const (
	HookAllow = "allow"
	HookDeny  = "deny"
)

// HookRule denies if its condition holds: see [policy.ParseRule].
type HookRule struct {
	Condition string `json:"condition"`
	Message   string `json:"message,omitempty"` // for the model; "" = one that names the condition
}

// ApprovalHook makes a tool call wait for a person.
type ApprovalHook struct {
	Message        string `json:"message,omitempty"`         // for the person
	TimeoutSeconds int    `json:"timeout_seconds,omitempty"` // 0 = DefaultApprovalTimeout
}

// Limits of hooks.
const (
	DefaultHookTimeout = 5 * time.Second
	MaxHookTimeout     = 30 * time.Second
	MaxHookURL         = 2048 // bytes
	MaxHookHeaders     = 20
	MaxHookRules       = 20
	MaxHookMessage     = 1_000 // bytes
	MaxMatcher         = 128   // bytes

	DefaultApprovalTimeout = 300 * time.Second
	MaxApprovalTimeout     = 90 * 24 * time.Hour
)

// Type returns http, rule or approval; "" for a hook with none of them.
func (h Hook) Type() string {
	switch {
	case h.HTTP != nil:
		return "http"
	case h.Rules != nil:
		return "rule"
	case h.Approval != nil:
		return "approval"
	}
	return ""
}

// HookTypes returns what [Hook.Type] can be.
func HookTypes() []string { return []string{"http", "rule", "approval"} }

// Check returns a [*FieldError] for the first member that is wrong. It does not check the URL against
// the outbound policy.
func (h Hook) Check() error {
	kind := h.Type()
	switch {
	case h.Event == OnDelegation:
		return wrong("event", "OnDelegation is not available in this version: agents cannot delegate yet; use PreToolUse")
	case !slices.Contains(HookEvents(), h.Event):
		return wrong("event", "%.60q is not an event; the events are %s", h.Event, join(slices.DeleteFunc(HookEvents(), func(e HookEvent) bool { return e == OnDelegation })))
	case kind == "":
		return wrong("type", "must be one of %s", strings.Join(HookTypes(), ", "))
	case kind == "rule" && !h.Event.MayBlock():
		return wrong("type", "a rule can only deny, and nothing can be denied at %s; use the type http", h.Event)
	case kind == "approval" && h.Event != PreToolUse && h.Event != OnDelegation:
		return wrong("type", "only tool calls can wait for approval; use the event PreToolUse")
	case kind == "http" && h.Event == OnRunComplete && h.HTTP.OnError == HookDeny:
		return wrong("config.on_error", "nothing can be denied at OnRunComplete: the run has ended; leave it out")
	case h.Matcher != "" && !h.Event.OfTools():
		return wrong("matcher", "selects tools, and the event %s is not about a tool", h.Event)
	case len(h.Matcher) > MaxMatcher || !printable(h.Matcher, "") || strings.ContainsAny(h.Matcher, " \t") || malformed(h.Matcher):
		return wrong("matcher", "must be a tool name, or a glob such as pay_* whose brackets are closed, with at most %d bytes", MaxMatcher)
	case h.Position < 0 || h.Position > 1_000_000:
		return wrong("position", "must be a whole number from 0 to 1000000")
	}
	switch kind {
	case "http":
		return inside("config", h.HTTP.check())
	case "rule":
		return inside("config", checkRules(h.Rules))
	}
	return inside("config", h.Approval.check())
}

func malformed(glob string) bool {
	_, err := path.Match(glob, "")
	return err != nil
}

func join(events []HookEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, string(e))
	}
	return strings.Join(all, ", ")
}

func (h HTTPHook) check() error {
	u, err := url.Parse(h.URL)
	switch {
	case h.URL == "":
		return wrong("url", "is required")
	case len(h.URL) > MaxHookURL:
		return wrong("url", "has more than %d bytes", MaxHookURL)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return wrong("url", "must be an absolute URL such as https://example.com/hooks")
	case u.User != nil || strings.Contains(h.URL, "#"):
		return wrong("url", "must have no user name and no fragment; send credentials in headers")
	case h.TimeoutSeconds < 0 || time.Duration(h.TimeoutSeconds)*time.Second > MaxHookTimeout:
		return wrong("timeout_seconds", "must be a whole number from 1 to %d", int(MaxHookTimeout/time.Second))
	case h.OnError != "" && h.OnError != HookAllow && h.OnError != HookDeny:
		return wrong("on_error", "must be allow or deny")
	case len(h.Headers) > MaxHookHeaders:
		return wrong("headers", "a hook has at most %d headers", MaxHookHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		if _, err := secret.Parse(h.Headers[name]); err != nil {
			return wrong("headers."+name, "%v", err)
		}
	}
	if h.Secret == "" {
		return nil
	}
	if ref, err := secret.ParseRef(h.Secret); err != nil || ref.Kind() != secret.Vault {
		return wrong("secret", "must refer to the vault, such as secret:hook_key; store the value (whsec_…) with PUT /api/secrets/NAME")
	}
	return nil
}

func checkRules(rules []HookRule) error {
	if len(rules) == 0 || len(rules) > MaxHookRules {
		return wrong("rules", "want a condition, or 1 to %d rules", MaxHookRules)
	}
	for i, r := range rules {
		field := fmt.Sprintf("rules[%d].", i)
		if len(rules) == 1 {
			field = ""
		}
		if _, err := policy.ParseRule(r.Condition); err != nil {
			return wrong(field+"condition", "%v", err)
		}
		if len(r.Message) > MaxHookMessage || !printable(r.Message, "\n\t") {
			return wrong(field+"message", "must have at most %d bytes, and no control characters", MaxHookMessage)
		}
	}
	return nil
}

func (a ApprovalHook) check() error {
	switch {
	case len(a.Message) > MaxHookMessage || !printable(a.Message, "\n\t"):
		return wrong("message", "must have at most %d bytes, and no control characters", MaxHookMessage)
	case a.TimeoutSeconds < 0 || a.TimeoutSeconds > int(MaxApprovalTimeout/time.Second):
		return wrong("timeout", "must be a whole number of seconds from 1 to %d", int(MaxApprovalTimeout/time.Second))
	}
	return nil
}

// OrderedHooks returns the hooks that are enabled in the order in which they run: by position, then by
// their creation.
func (d Definition) OrderedHooks() []Hook {
	out := slices.DeleteFunc(slices.Clone(d.Hooks), func(h Hook) bool { return !h.Enabled })
	slices.SortStableFunc(out, func(a, b Hook) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.CreatedAt, b.CreatedAt))
	})
	return out
}
