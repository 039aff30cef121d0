package settings_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/settings"
)

// A run has the hooks of its key that are enabled, in the order of their positions and then of
// the list, and nothing secret of them. // H07 H22
func TestHooksOfAKey(t *testing.T) {
	rt := org.Runtime{Hooks: []org.Hook{
		{ID: "last", Event: "PreToolUse", Type: "http", Position: 5, Config: org.HookConfig{URL: "https://example.com/secret", Secret: "secret:s", OnError: "deny"}},
		{ID: "off", Event: "PreToolUse", Type: "http", Disabled: true},
		{ID: "first", Event: "PreToolUse", Type: "rule", Matcher: "pay_*", Config: org.HookConfig{Condition: "a IN [1]", Message: "no"}},
		{ID: "ask", Event: "PreToolUse", Type: "approval", Keys: []string{"ann"}, Config: org.HookConfig{Message: "Pay?", Timeout: time.Hour}},
		{ID: "bob", Event: "OnRunStart", Type: "rule", Keys: []string{"bob"}, Config: org.HookConfig{Rules: []org.HookRule{{Condition: "a IN [1]"}, {Condition: "b IN [2]"}}}},
	}}
	rule := loop.Hook{ID: "first", Point: loop.PreToolUse, Type: loop.HookRules, Matcher: "pay_*", Rules: []loop.HookRule{{Condition: "a IN [1]", Message: "no"}}}
	last := loop.Hook{ID: "last", Point: loop.PreToolUse, Type: loop.HookHTTP, Position: 5, DenyOnError: true}
	ask := loop.Hook{ID: "ask", Point: loop.PreToolUse, Type: loop.HookApproval, Message: "Pay?", WaitMS: 3_600_000}
	if diff := cmp.Diff([]loop.Hook{rule, ask, last}, settings.Hooks(rt, "ann", nil, 0)); diff != "" {
		t.Error(diff)
	}
	ask.WaitMS = 60_000
	if diff := cmp.Diff([]loop.Hook{rule, ask, last}, settings.Hooks(rt, "ann", nil, time.Minute)); diff != "" {
		t.Error(diff)
	}
	start := loop.Hook{ID: "bob", Point: loop.OnRunStart, Type: loop.HookRules, Rules: []loop.HookRule{{Condition: "a IN [1]"}, {Condition: "b IN [2]"}}}
	if diff := cmp.Diff([]loop.Hook{rule, ask, last}, settings.Hooks(rt, "made", []org.Maker{{Key: "other"}, {Key: "ann"}}, time.Minute)); diff != "" {
		t.Errorf("of a key that ann has made: %s", diff)
	}
	if diff := cmp.Diff([]loop.Hook{rule, start, last}, settings.Hooks(rt, "bob", nil, 0)); diff != "" {
		t.Error(diff)
	}
}

// Tools have several names only where the switches of an org offer them: elsewhere another tool of such a name is not meant.
func TestHooksSelectFurtherNamesWhereTheSwitchesOfferThem(t *testing.T) {
	hooks := []org.Hook{{ID: "h", Event: "PreToolUse", Type: "rule", Matcher: "read_file"}, {ID: "own", Agent: true, Event: "PreToolUse", Type: "rule", Matcher: "read_file"}}
	for _, c := range []struct {
		rt   org.Runtime
		want string
	}{
		{org.Runtime{Hooks: hooks}, "h[] own[]"},
		{org.Runtime{Hooks: hooks, BuiltinTools: []org.BuiltinTool{{Name: "code_execute"}}}, "h[] own[]"},
		{org.Runtime{Hooks: hooks, EnableCode: true}, "h[code_execute] own[]"},
		{org.Runtime{Hooks: hooks, EnableSearch: true}, "h[code_execute] own[]"}, // its server has the forms of all tools
	} {
		var got []string
		for _, h := range settings.Hooks(c.rt, "ann", nil, 0) {
			got = append(got, fmt.Sprint(h.ID, h.Also))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, want %q", c.rt, got, c.want)
		}
	}
}
